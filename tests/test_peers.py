"""The comparison with other servers: its ratios, its tables, its document. Nobody is installed."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peers.catalogue import AGAIN, CONVOY, PEERS
from benchmarks.peers.contest import Contestant, Field
from benchmarks.peers.corpus import passages_from, texts_from
from benchmarks.peers.course import NOT_TOLD, Plan, Records
from benchmarks.peers.document import BEGIN, END, Circumstances, report, write_between_marks
from benchmarks.peers.environments import REQUIREMENTS
from benchmarks.peers.figures import Column, Spread, best
from benchmarks.peers.processes import elsewhere
from benchmarks.peers.shapes import quantile
from benchmarks.peers.tables import advantage_table, better_list, figures_table
from benchmarks.peers.wire import Wire
from benchmarks.peers.workloads import Closed, Leaving, Mixed, Overload, Steady

WIRE = Wire("/embed")


def test_an_unknown_peer_is_refused_before_anything_starts() -> None:
    command = [sys.executable, "-m", "benchmarks.peers", "--peers", "infinity,nobody"]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "No such peer: nobody" in done.stderr


def test_every_peer_is_pinned() -> None:
    for peer in PEERS:
        lines = (REQUIREMENTS / f"{peer.requirements}.txt").read_text().splitlines()
        pins = [line for line in lines if not line.startswith("#")]
        assert all("==" in pin for pin in pins)
        assert any(pin.partition("==")[0].partition("[")[0] == peer.package for pin in pins)


def test_texts_come_once_each_and_in_the_same_order(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("one\n\n two \none\n")
    assert sorted(texts_from(file)) == ["one", "two"]
    made_up = texts_from(None)
    assert made_up == texts_from(None)
    assert len(made_up) == len(set(made_up)) > 500
    assert passages_from(made_up, count=3) == passages_from(made_up, count=3)


def test_a_spread_is_the_median_and_the_range_of_what_is_known() -> None:
    assert Spread.of([3, 1, 2]).text(0) == "2 (1 to 3)"
    assert Spread.of([1234.56]).text(1) == "1,234.6"
    assert Spread.of([1, math.nan]).text(0) == "1"
    assert Spread.of([]).text(0) == Spread.of([math.nan]).text(0) == "–"
    assert math.isnan(quantile([], 0.5))


def test_an_advantage_is_taken_within_rounds_and_in_the_right_direction() -> None:
    rates = Column("rate", {"a": [200, 300], "b": [100, 100], "dead": [0, 0]}, "more")
    assert rates.advantage("a", "b") == Spread(2.5, 2, 3)
    assert math.isnan(rates.advantage("a", "dead").median)
    latencies = Column("p50", {"a": [10, 10], "b": [20, 40]}, "less")
    assert latencies.advantage("a", "b") == Spread(3, 2, 4)
    assert best({"a": [1, 2], "b": [3], "dead": [math.nan]}, ["a", "b", "dead"]) == "b"


def test_tables_have_a_line_for_each_and_ratios_only_where_one_is_better() -> None:
    columns = [Column("rate", {"a": [200], "b": [100]}, "more"), Column("late", {"a": [1], "b": [2]})]
    assert figures_table(columns, ["a", "b", "c"]).splitlines() == [
        "|  | rate | late |",
        "| --- | --- | --- |",
        "| a | 200 | 1 |",
        "| b | 100 | 2 |",
        "| c | – | – |",
    ]
    assert advantage_table(columns, [("a", "b")]).splitlines()[2] == "| a / b | × 2.00 |"


def test_losses_are_listed_with_whether_noise_explains_them() -> None:
    column = Column(
        "p50",
        {CONVOY: [10, 10], AGAIN: [10, 9], "fast": [5, 5], "near": [9.5, 9.5], "slow": [20, 20]},
        "less",
        0,
        "p50",
    )
    lines = better_list([column], [CONVOY, AGAIN, "fast", "near", "slow"]).splitlines()
    assert lines == [
        "- **fast**: p50 (× 2.00).",
        "- **near**: p50 (× 1.05, within the noise).",
        "- **slow**: nothing that was measured here.",
    ]


def test_only_what_lies_between_the_marks_is_replaced(tmp_path: Path) -> None:
    document = tmp_path / "comparison.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_between_marks(document, "new")
    assert document.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    document.write_text("no marks")
    with pytest.raises(ValueError, match="has no marks"):
        write_between_marks(document, "new")


def test_a_report_has_every_table_and_names_who_is_missing_and_why() -> None:
    names = [CONVOY, AGAIN, "mosec bfloat16"]
    contestants = Field(
        [Contestant(elsewhere(name, WIRE, "http://127.0.0.1:1"), name.split()[0], "bfloat16") for name in names],
        absent={"infinity": "pip could not install infinity: no space"},
    )
    records = Records(
        closed={32: {name: [Closed(100, 1, 2, 3, 0), Closed(110, 1, 2, 3, 0)] for name in names}},
        finalists=names,
        rate_per_s=20,
        steady={name: [Steady(1, 2, 0, 0.1)] for name in names},
        mixed={name: [Mixed(1, 2, 3, 4, 5, 0)] for name in names},
        overload={name: [Overload(0.9, 0.3, 0.1, 0)] for name in (*names, NOT_TOLD)},
        leaving={name: [Leaving(1, 2, 3, 4, 5)] for name in names},
        cosine=dict.fromkeys(names, 0.9999),
        memory_mb={CONVOY: 300, AGAIN: 300, "mosec bfloat16": 200},
    )
    plan = Plan(2, 1, (32,), 0, 10, 200, 1.5, 500, 0.05)
    told = Circumstances("make bench-peers", "2 cores", "today", 3, ["a b c"], "made-up", 0.1)
    text = report(plan, contestants, records, told)
    assert "| convoy / mosec bfloat16 | × 1.00 |" in text
    assert "| convoy, deadline not told | 90 | 30 | 10 | 0 |" in text
    assert "- **mosec bfloat16**: memory (× 1.50)." in text
    assert "- infinity: pip could not install infinity: no space" in text
    assert "`make bench-peers` on today" in text
    assert text.count("### ") == 9
