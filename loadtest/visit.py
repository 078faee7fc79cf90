"""A visit: one run of locust that plays some steps against one service."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from loadtest.errors import LoadTestFailed
from loadtest.samples import Table, read_table
from loadtest.service import ROOT, Target
from loadtest.steps import Step, write_steps

LEAST_POOL, MOST_POOL = 64, 3000
POOL_S = 4.0
"""In an open loop there are users enough for answers that take so long."""


@dataclass(frozen=True, slots=True)
class Visit:
    """What came of it."""

    target: str
    round: int
    steps: Sequence[Step]
    path: Path
    """The CSV file with its samples."""
    samples: Table
    marks: dict[str, dict[str, Any]]
    """By step: requests that were never sent, and the service's metrics at both ends of what counts."""

    def of(self, step: str) -> Table:
        """The samples of one step."""
        return self.samples.where(self.samples["step"] == step)


def visit(
    target: Target, steps: Sequence[Step], number: int, options: Sequence[str], stem: Path, tell: Callable[[str], None]
) -> Visit:
    """Play the steps in round `number`; `tell` gets a line for each as it ends.

    Files are written beside `stem`. Raises LoadTestFailed where locust could not do it or an answer was wrong.
    """
    plan, csv, marks, log = (stem.with_suffix(suffix) for suffix in (".plan.json", ".csv", ".marks.json", ".log"))
    write_steps(steps, plan)
    pool = max([LEAST_POOL, *(int(step.level * POOL_S) for step in steps if step.loop == "open")])
    command = [
        sys.executable, "-m", "locust", "-f", str(ROOT / "loadtest" / "locustfile.py"), "--headless", "--only-summary",
        "--host", target.url, "--plan", str(plan), "--samples", str(csv), "--marks", str(marks),
        "--pool", str(min(MOST_POOL, pool)), "--seed", str(number + 1), "--exit-code-on-error", "0", *options,
    ]  # fmt: skip
    code = _run(command, log, tell)
    if code or not marks.exists():
        raise LoadTestFailed(f"locust ended with code {code} against `{target.name}`. {_reason(log)}")
    told = orjson.loads(marks.read_bytes())
    if told["wrong"]:
        raise LoadTestFailed(f"The service `{target.name}` answered wrongly: {told['wrong']}.")
    return Visit(target.name, number, steps, csv, read_table(csv), {one["step"]: one for one in told["steps"]})


def _run(command: Sequence[str], log: Path, tell: Callable[[str], None]) -> int:
    """Run locust to its end; returns its exit code."""
    with (
        log.open("w") as file,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=file, text=True, env=_environment()
        ) as process,
    ):  # fmt: skip
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("step "):
                    tell(line.removeprefix("step ").rstrip())
            return process.wait()
        finally:
            process.kill()


def _environment() -> dict[str, str]:
    """Locust takes options from LOCUST_… too; a test is what its command line says."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LOCUST_")}


def _reason(log: Path) -> str:
    """The sentence our own code wrote, or the last line there is."""
    lines = [line for line in log.read_text().splitlines() if re.search(r"\w", line)]  # tables end in a rule
    ours = [line for line in lines if line.startswith("The load test has not begun")]
    return (ours or lines or ["It said nothing."])[-1]
