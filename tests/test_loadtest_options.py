"""What the load test and the planner are told on their command lines, and what they find in files."""

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import psutil
import pytest

from loadtest import plan, run
from loadtest.forecast import Law
from loadtest.theory import Service
from tests.server import ROOT

URL = "http://127.0.0.1:9"


def refused(main: object, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line's own parser says of these arguments."""
    assert callable(main)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("--slo-ms", value) for value in ("0", "-1", "nan", "inf", "x")],
        *[("--target", value) for value in ("../x=" + URL, "a b=" + URL, "=" + URL, "one", "one=", "one=ftp://x")],
        *[("--target", value) for value in ("one=http://", "one=http://x:y", "one=http://a b", "one=127.0.0.1:8000")],
        *[("--rates", value) for value in ("on=x", "on=-4", "on=nan", "on=0", "on=1,,2", "on=", "5")],
        ("--warmup-s", "-1"),
        ("--rounds", "0"),
        ("--rounds", "1.5"),
        ("--users", "0"),
        ("--seconds", "0"),
        ("--closed-seconds", "0"),
        ("--list-items", "0"),
        ("--serve-flags", "'"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_before_anything_starts(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(run.main, [f"{option}={value}"], capsys)
    assert f"argument {option}" in said
    assert "`" in said, "it names the value"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("--rate", value) for value in ("0", "-5", "nan", "inf")],
        *[("--tokens", value) for value in ("0", "-4")],
        ("--slo-ms", "nan"),
        ("--other-ms", "-100"),
        ("--url", "localhost:8000"),
    ],
)
def test_the_planner_refuses_a_value_that_makes_no_sense(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"argument {option}" in refused(plan.main, ["--rate=10", f"{option}={value}"], capsys)


def test_what_does_not_fit_together_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_file = tmp_path / "file"
    a_file.touch()
    one = ["--target", f"one={URL}", "--users", "--out", str(tmp_path)]
    for arguments, says in [
        ([*one, "--target", f"one={URL}", "--rates", "one=1"], "two services are called `one`"),
        ([*one, "--rates", "one=1", "--rates", "two=1"], "there is no service `two`, but one"),
        (one, "there are no rates for `one`"),
        ([*one[:-1], str(a_file), "--rates", "one=1"], f"--out {a_file} cannot be written to: File exists"),
        ([*one, "--rates", "one=1", "--texts", str(tmp_path / "none")], "cannot be read"),
    ]:
        assert run.main(arguments) == 1
        assert says in capsys.readouterr().err


def test_a_test_that_is_told_to_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "loadtest.run", "--model", "fake://?dim=8", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [*command, "--rates", "on=5", "--rates", "off=5", "--seconds", "60", "--users"], cwd=ROOT, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    with process:
        end = time.monotonic() + 60
        while len(mine := psutil.Process(process.pid).children()) < 3:  # two services and locust
            assert process.poll() is None, process.stderr
            assert time.monotonic() < end, "locust has not begun"
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert said.strip().splitlines()[-1] == "Stopped; there is no report."
    assert not [child for child in mine if child.is_running()]
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rate", "-3"], "--rate: `-3.0` is no finite number of at least 0"),
        (["--pool", "0"], "--pool: `0` is less than 1"),
        (["--users-at-once", "20000", "--loop", "closed"], "20000 users at once are too many"),
        (["--pool", "20000"], "20000 users at once are too many"),
        (["--plan", "none"], "--plan none holds no steps to play"),
        (["--samples", "no/where"], "--samples no/where cannot be written: No such file or directory"),
    ],
)
def test_locust_ends_at_once_with_a_sentence(arguments: list[str], says: str) -> None:
    command = [sys.executable, "-m", "locust", "-f", "loadtest/locustfile.py", "--headless", "--host", URL]
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert f"The load test has not begun: {says}" in done.stderr
    assert done.returncode == 1


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A folder with the figures of a report, as far as the planner reads them."""
    law = Law(Service(0.1, token_s=2e-6, max_tokens=450), error=0.05, other_ms=1.0)
    target = {"name": "on", "law": law.as_dict(), "best": None}
    (tmp_path / "results.json").write_bytes(orjson.dumps({"targets": [target], "test": {"objective_ms": 100}}))
    return tmp_path


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"words\n3\n", "no column `tokens`"),
        (b"", "no column `tokens`"),
        (b"tokens\n", "only empty values or zeros"),
        (b"tokens\n0\n\n", "only empty values or zeros"),
        (b"tokens,text\n3\n", "a line has 1 values where 2 columns have names"),
        (b"tokens\nmany\n", "`many` in the column `tokens` is no number"),
        (b"tokens\n\xff\xfe\n", "cannot be read as CSV"),
        (b"\x00" * 200_000, "cannot be read as CSV"),
    ],
)
def test_lengths_that_tell_none_make_no_plan(
    content: bytes, says: str, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (report / "lengths.csv").write_bytes(content)
    arguments = ["--rate", "10", "--report", str(report), "--lengths", str(report / "lengths.csv")]
    assert plan.main(arguments) == 1
    assert says in capsys.readouterr().err


def test_a_damaged_file_of_lengths_makes_no_plan(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = gzip.compress(b"tokens\n" + b"".join(b"%d\n" % (i * i) for i in range(1, 9999)))
    for damaged in (whole[: len(whole) // 2], whole[:100] + b"damaged" + whole[107:], b"no gzip at all"):
        (report / "samples.csv.gz").write_bytes(damaged)
        assert plan.main(["--rate", "10", "--report", str(report)]) == 1
        assert "cannot be read as CSV" in capsys.readouterr().err


def test_lengths_come_from_what_spreadsheets_write(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (report / "lengths.csv").write_bytes("\ufefftokens,Text\r\n30,Grüße\r\n\r\n50,zwei\r\n".encode())
    arguments = ["--rate", "10", "--slo-ms", "500", "--report", str(report), "--lengths", str(report / "lengths.csv")]
    assert plan.main(arguments) == 0
    assert "texts: 40.0 tokens in the mean" in capsys.readouterr().out


def test_more_replicas_than_anybody_has_are_asked_about(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (report / "lengths.csv").write_text("tokens\n20\n")
    lengths = ["--lengths", str(report / "lengths.csv")]
    assert plan.main(["--rate", "1e12", "--slo-ms", "500", "--report", str(report), *lengths]) == 1
    assert "need more than 100,000 replicas" in capsys.readouterr().err


@pytest.mark.parametrize("results", [[], {"targets": []}, {"targets": [{"name": "on"}]}, {"targets": 5}, 3, None])
def test_a_report_of_another_kind_makes_no_plan(
    results: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.json").write_bytes(orjson.dumps(results))
    assert plan.main(["--rate", "10", "--report", str(tmp_path)]) == 1
    assert "of another kind" in capsys.readouterr().err
