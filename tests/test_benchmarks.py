"""The benchmarks run; what they measure is not asserted here."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_gpu_check_runs_on_a_cpu_as_well() -> None:
    command = [
        sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--dtype", "float32", "--seconds", "1",
        "--connections", "8", "--quick",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "least cosine to float32 on a CPU, all at once: 1.000000" in done.stdout
    assert "least cosine to float32 on a CPU, one by one: 1.000000" in done.stdout
    assert "a full batch of" in done.stdout
    assert "through HTTP, 8 connections" in done.stdout


def test_the_other_benchmarks_explain_themselves() -> None:
    for name in ("edge", "batching", "vectorizer"):
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0
        assert "usage" in done.stdout
