"""The founding experiment: its ways come to the same numbers, and what it says besides times is so."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tqdm import tqdm

from benchmarks import loop_vs_batch
from benchmarks.loop_vs_batch import arguments
from benchmarks.loop_vs_batch_cases import (
    TOLERANCE,
    Case,
    batch_case,
    fired,
    hook_case,
    item_case,
    make_encoder,
    make_vectors,
    one_batch,
    one_by_one,
    reads,
    require,
    summed_losses,
)
from benchmarks.loop_vs_batch_pipeline import pipeline_case
from benchmarks.loop_vs_batch_rounds import PASSES, Times, alternate, ratio, report, shown_s

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """All four, small."""
    return [batch_case(CPU, 20), pipeline_case(CPU, 19, warmup="off"), hook_case(CPU, 30), item_case(CPU, 120)]


def test_vectors_one_by_one_are_those_of_the_batch() -> None:
    model, vectors = make_encoder(CPU), make_vectors(33, CPU)
    rows = one_by_one(model, vectors)
    assert [tuple(row.shape) for row in rows] == [(1, 512)] * 33
    torch.testing.assert_close(torch.cat(rows), one_batch(model, vectors), atol=TOLERANCE, rtol=0)
    assert one_batch(model, vectors).std(dim=0).min() > 0.01, "the vectors differ, so that an order could be wrong"


def test_the_pipelines_give_the_same_rows_of_unit_length(cases: list[Case]) -> None:
    rows = {name: run() for name, run in cases[1].ways.items()}
    expected = rows["bare function, item by item"]
    assert expected.shape == (19, 384)
    assert len(np.unique(expected.round(4), axis=0)) > 15, "the texts differ, so that an order could be wrong"
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=TOLERANCE)
    for name in ("bare function, chunks of 8", "vectorizer"):
        np.testing.assert_allclose(rows[name], expected, atol=TOLERANCE, rtol=0)


def test_a_call_fires_the_hook_of_the_model_and_forward_only_those_within() -> None:
    assert fired("__call__", CPU, 7) == (7, 7)
    assert fired("forward", CPU, 7) == (0, 7)


def test_the_host_reads_once_a_step_or_once_in_so_many() -> None:
    model, vectors = make_encoder(CPU), make_vectors(2, CPU)
    assert reads(lambda: summed_losses(model, vectors, 120, 1)) == 120
    assert reads(lambda: summed_losses(model, vectors, 120, 50)) == 3, "after 50, after 100, and at the end"
    assert summed_losses(model, vectors, 120, 1) == pytest.approx(summed_losses(model, vectors, 120, 50), rel=1e-5)


@pytest.mark.parametrize("difference", [2 * TOLERANCE, float("nan")])
def test_ways_that_come_to_other_numbers_end_the_experiment(difference: float) -> None:
    with pytest.raises(SystemExit, match="differ by"):
        require(difference)


def test_the_ways_of_a_case_take_turns_there_and_back() -> None:
    turns: list[str] = []
    names = ("one", "two", "three")
    case = Case("(x)", "turn", 2, {name: partial(turns.append, name) for name in names}, (), "")
    with tqdm(disable=True) as progress:
        times = alternate(case, CPU, rounds=2, turn_s=0, progress=progress)
    assert turns == [*names, *(*names, *reversed(names)) * (2 * PASSES)], "a warm-up, then two rounds"
    assert [len(found) for found in times.values()] == [2, 2, 2]


def test_a_ratio_says_how_many_times_as_fast_within_a_round() -> None:
    times: Times = {"fast": [1e-6, 2e-6, 1e-6], "slow": [4e-6, 4e-6, 3e-6]}
    assert ratio(times, "fast", "slow") == "3.00 (2.00 to 4.00) × slow"
    assert [shown_s(one) for one in (12.345e-6, 9.87e-3, 1.2345)] == ["12.3 µs", "9.87 ms", "1234 ms"]


def measured(cases: list[Case]) -> list[Times]:
    """Made-up times, alike for all."""
    return [{name: [1e-3, 2e-3, 3e-3] for name in case.ways} for case in cases]


def test_the_report_has_all_ways_and_facts(cases: list[Case]) -> None:
    text = report(cases, measured(cases), CPU, 3)
    rows = re.findall(r"^\| .*", text, re.MULTILINE)
    assert len(rows) == 2 + sum(len(case.ways) for case in cases)
    assert all(row.count("|") == 5 for row in rows)
    assert "nothing to synchronise" in text
    assert "In 30 calls of `model(x)` a hook on the encoder fires 30 times" in text
    assert "of `model.forward(x)` 0 and 30 times" in text
    assert "reads a value 120 times against 3" in text


def test_the_document_has_the_report_as_the_command_prints_it(cases: list[Case]) -> None:
    """But for its figures: the same ways are compared, in the same words."""

    def ways(text: str) -> list[str]:
        table = re.findall(r"^\| (?:\([a-d]\)[^|]*)? ?\| ([^|]+) \| [^|]+ a (\w+) \|", text, re.MULTILINE)
        return [" ".join(row) for row in table]

    assert ways(DOCUMENT.read_text()) == ways(report(cases, measured(cases), CPU, 3)) != []


def test_the_plot_is_drawn_in_both_formats(cases: list[Case], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plot needs the extra `plots`")
    from benchmarks.loop_vs_batch_plot import draw, save

    save(draw(cases, measured(cases), "cpu"), tmp_path / "times")
    assert (tmp_path / "times.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "times.svg").read_text()


def test_the_command_has_defaults_for_all() -> None:
    args = arguments([])
    assert (args.device, args.vectors, args.plot) == ("auto", 2000, None)


def test_openmp_can_be_told_how_to_wait_before_torch_is_there() -> None:
    code = "import sys, benchmarks.loop_vs_batch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


@pytest.mark.parametrize(("flags", "policy"), [([], None), (["--sleeping-threads"], "PASSIVE")])
def test_threads_wait_as_in_a_plain_script_unless_told_to_sleep(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], policy: str | None
) -> None:
    seen: list[str | None] = []
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setattr(sys, "argv", ["loop_vs_batch", *flags])
    monkeypatch.setattr(loop_vs_batch, "run", lambda args: seen.append(os.environ.get("OMP_WAIT_POLICY")))
    loop_vs_batch.main()
    assert seen == [policy]


def test_the_command_prints_the_report_and_nothing_else() -> None:
    """What it prints goes into a document as it stands; progress and the warm-up's log are on stderr."""
    small = [f"--{what}=3" for what in ("vectors", "texts", "calls", "steps")]
    command = [sys.executable, "-m", "benchmarks.loop_vs_batch", "--device=cpu", "--rounds=1", "--turn-s=0", *small]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    head, table, facts = done.stdout.strip().split("\n\n")
    assert re.fullmatch(
        r"cpu, .*threads: \d+, waiting as OpenMP has it by default; medians of 1 rounds\. Nothing is asynchronous.*",
        head,
    )
    assert all(line.startswith("| ") for line in table.splitlines())
    assert [line[:6] for line in facts.splitlines()] == ["- (a) ", "- (b) ", "- (c) ", "- (d) "]
