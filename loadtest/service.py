"""The services under test: started for the test, or already running somewhere."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from loadtest.errors import LoadTestFailed

ROOT = Path(__file__).resolve().parent.parent
READY_WITHIN_S = 300
STOPPED_WITHIN_S = 60


class Target(NamedTuple):
    """A service by the name it has in the report."""

    name: str
    url: str

    def info(self) -> dict[str, Any]:
        """What it says of itself; empty where it does not answer `/info`."""
        return self._json("/info")

    def metrics(self) -> str:
        """Its metrics in Prometheus' format; empty where it has none."""
        return self._get("/metrics").decode(errors="replace")

    def _json(self, path: str) -> dict[str, Any]:
        try:
            found = orjson.loads(self._get(path) or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _get(self, path: str) -> bytes:
        key = os.environ.get("CONVOY_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=30) as answer:
                return bytes(answer.read())
        except (OSError, HTTPException):
            return b""


@contextmanager
def started(name: str, flags: Sequence[str], log: Path) -> Iterator[Target]:
    """Run `python -m app serve` with these flags on a free port until the block ends; yields it when it is ready.

    Raises LoadTestFailed where it does not become ready.
    """
    port = _free_port()
    command = [sys.executable, "-m", "app", "serve", "--port", str(port), "--log-level", "warning"]
    command += ["--slow-request-ms", "0", *flags]  # past the knee every request is slow: that is no news for the log
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
    target = Target(name, f"http://127.0.0.1:{port}")
    try:
        _await_ready(target, process, log)
        yield target
    finally:
        process.terminate()
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(target: Target, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise LoadTestFailed(f"The service `{target.name}` ended with code {process.returncode}: {_last_line(log)}")
        try:
            with urllib.request.urlopen(target.url + "/ready", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (OSError, HTTPException):
            time.sleep(0.1)
    raise LoadTestFailed(f"The service `{target.name}` was not ready within {READY_WITHIN_S} s; see {log}.")


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
