"""`python -m app doctor` as people run it: its output, its exit code, and what it says where it cannot."""

import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.doctor.command import MATTERING
from app.settings import Settings
from tests.server import ROOT
from tests.small_models import save_classifier
from tests.test_doctor_page import documented, flat, words

FAKE = "fake://?dim=8&base_ms=2&item_ms=0.01&max_tokens=64"
PATIENCE_S = 600
"""For a machine with much else to do; alone, the longest takes half a minute."""


def doctor(*flags: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "app", "doctor", *flags], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S,
        env={**os.environ, **env},
    )  # fmt: skip


@pytest.fixture(scope="module")
def bundled() -> dict[str, Any]:
    """What the doctor finds of the bundled model on this machine."""
    done = doctor("--json", "--warmup", "quick", "--device", "cpu")
    assert (done.returncode, done.stderr) == (0, ""), "something else than the report was printed"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_json_has_documented_keys_alone(bundled: dict[str, Any]) -> None:
    assert set(flat(bundled)) - {"pinned", "threads_compared"} <= documented(), "which are null on one core or no card"
    assert bundled["pinned"] is None, "there is no card"
    assert bundled["model"]["device_kind"] == "cpu"
    assert bundled["machine"]["cores"]["granted"] == bundled["machine"]["threads"]["within_operator"]


def test_a_bill_for_each_size_adds_up_to_its_whole(bundled: dict[str, Any]) -> None:
    bills = bundled["bills"]
    assert [bill["texts"] for bill in bills] + [one["texts"] for one in bundled["left_out"]] == [1, 8, 64, 512]
    for bill in bills:
        assert sum(line["ms"] for line in bill["lines"]) == pytest.approx(bill["whole"]["ms"])
        assert sum(line["share"] for line in bill["lines"]) == pytest.approx(1)
        assert bill["whole"]["low_ms"] <= bill["whole"]["ms"] <= bill["whole"]["high_ms"]
        assert bill["texts_per_s"] == pytest.approx(bill["texts"] / bill["whole"]["ms"] * 1000)
        assert bill["repetitions"] >= 3
        for line in bill["lines"][:-1]:
            assert 0 <= line["low_ms"] <= line["ms"] <= line["high_ms"], line
        assert bill["lines"][-1]["key"] == "not_attributed"


def test_the_bill_of_a_real_model_has_its_operators_and_its_pooling_and_no_hidden_wait(bundled: dict[str, Any]) -> None:
    first, *_, last = bundled["bills"]
    lines = {line["key"]: line["ms"] for line in first["lines"]}
    assert min(lines[key] for key in ("tokenization", "python", "launches", "compute", "pooling")) > 0
    assert lines["synchronisation"] == 0
    assert f"{first['counts']['operators']} operators" in first["lines"][2]["meaning"]
    assert last["counts"]["operators"] > first["counts"]["operators"] > 6 * 10, "six layers of ten operators at least"
    assert all(bill["counts"]["hidden_synchronisations"] == {} for bill in bundled["bills"])
    assert 0 < first["counts"]["products"] < 1
    assert (first["batches"], first["tokens"]) == (1, 13)
    assert last["batches"] >= last["tokens"] / bundled["sweep"]["budget_tokens"]


def test_the_sweep_has_its_knee_within_what_was_measured(bundled: dict[str, Any]) -> None:
    sweep = bundled["sweep"]
    tokens = [step["tokens"] for step in sweep["steps"]]
    assert tokens == sorted(tokens)
    assert max(step["reach"] for step in sweep["steps"]) == 1
    assert tokens[0] <= sweep["knee_tokens"] <= tokens[-1]


def test_the_gain_of_texts_together_is_what_the_bills_say(bundled: dict[str, Any]) -> None:
    assert len(bundled["suggestions"]) <= 3
    (together,) = (one for one in bundled["suggestions"] if "texts together" in one["what"])
    rates = {bill["texts"]: bill["texts_per_s"] for bill in bundled["bills"]}
    gains = [rate / rates[1] for texts, rate in rates.items() if f"about {texts} requests" in together["what"]]
    assert gains == [pytest.approx(together["gain"])]
    assert all(one["gain"] >= 1.05 and one["because"] for one in bundled["suggestions"])


def test_a_classifier_is_read_as_well_and_the_page_has_its_sentences(tmp_path: Path) -> None:
    done = doctor("--model", str(save_classifier(tmp_path / "model", "bert")), "--warmup", "off", "--device", "cpu")
    assert (done.returncode, done.stderr) == (0, "")
    text = words(done.stdout)
    assert "doctor: model (classification, 0.1 million parameters)" in text
    assert "From one vector for each token to one row for each text, with a classifier's head." in text
    assert "THE SWEEP OF BATCH SIZES texts tokens ms tokens/s of the best 1 32 " in text, (
        "the sweep that --warmup spares"
    )
    assert "None in a call of any size: nothing asks the device for a value on the way." in text
    assert "WHAT ONLY A GPU WOULD SHOW" in text


def test_a_simulated_device_says_that_it_is_one() -> None:
    done = doctor("--model", FAKE, "--batching", "off")
    assert (done.returncode, done.stderr) == (0, "")
    text = words(done.stdout)
    assert "It is a simulated device: it sleeps as its law says, and its figures tell nothing of a model." in text
    assert "What the law of the simulated device says; the thread sleeps for so long." in text
    assert "WHAT CANNOT BE SEEN HERE - anything of a model" in text
    assert "Turn batching on (--batching on): up to 512 texts then share a forward." in text


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--model", "./nowhere"], "--model ./nowhere: there is no such folder.\n"),
        (["--max-batch-items", "0"], "--max-batch-items '0': Input should be greater than or equal to 1.\n"),
        (["--model", "fake://?dim=4&base_ms=0&fail_on=a"],
         "The model could not be run: ValueError: The simulated device fails on 'a'.\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_a_sentence(flags: list[str], sentence: str) -> None:
    done = doctor(*flags)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", sentence)


def test_a_flag_that_there_is_not_is_told_with_the_usage_of_the_doctor() -> None:
    done = doctor("--nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python -m app doctor ")


def test_settings_come_from_the_environment_too() -> None:
    done = doctor("--json", CONVOY_MODEL=FAKE, CONVOY_SERVED_MODEL_NAME="from the environment")
    assert json.loads(done.stdout)["model"]["name"] == "from the environment"


def test_help_names_what_matters_and_loads_no_torch() -> None:
    code = (
        "import sys; from app.__main__ import main; code = main(['doctor', '--help']);"
        "sys.exit('torch was loaded' if 'torch' in sys.modules else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"--{name.replace('_', '-')}" in done.stdout for name in ("json", *MATTERING))
    assert set(MATTERING) <= set(Settings.model_fields)


@contextmanager
def on_a_terminal(*flags: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """The command with a terminal of 100 columns for its standard error; and where to read what it writes there."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 100))
    command = [sys.executable, "-m", "app", "doctor", *flags]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def read_until(words: bytes, terminal: int) -> None:
    """Wait until a terminal shows these words; OSError says that the process ended without them."""
    said = b""
    while words not in said:
        said += os.read(terminal, 100_000)


def test_a_terminal_sees_what_is_being_measured() -> None:
    with on_a_terminal("--json", "--model", FAKE) as (process, terminal):
        read_until(b"measuring calls of 64", terminal)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert json.loads(out)["model"]["simulated"]


def test_one_who_ends_it_gets_no_page_and_an_exit_code_that_says_so() -> None:
    with on_a_terminal("--model", "fake://?base_ms=4000") as (process, terminal):
        read_until(b"measuring calls of 1", terminal)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (1, b"")
