"""A real server process on a real port, for tests."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60


class RunningServer:
    """`python -m app serve` as a user starts it."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._log = log

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60)

    def async_client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        return httpx.AsyncClient(base_url=self.url, timeout=60, limits=limits)

    def metric(self, series: str) -> float:
        """The value of one series as `/metrics` has it now, named with its labels."""
        return metric_in(httpx.get(self.url + "/metrics").text, series)

    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text()

    def await_metric(self, series: str, at_least: float, timeout_s: float = 20) -> None:
        """Wait until a series has reached a value."""
        end = time.monotonic() + timeout_s
        while self.metric(series) < at_least:
            assert time.monotonic() < end, f"{series} did not reach {at_least}; it is {self.metric(series)}"
            time.sleep(0.01)

    def stop(self) -> int:
        """Send SIGTERM and wait; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)


def metric_in(text: str, series: str) -> float:
    """The value of one series in Prometheus' text format."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    assert found, f"there is no series {series}"
    return float(found[1])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_server(*flags: str, ready: bool = True, env: dict[str, str] | None = None) -> Iterator[RunningServer]:
    """Start a server on a free port and, unless told otherwise, wait until it is ready."""
    port = free_port()
    log = Path(os.environ.get("TMPDIR", "/tmp")) / f"convoy-test-{port}.log"
    command = [sys.executable, "-m", "app", "serve", "--port", str(port), *flags]
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, stderr=file, text=True, env={**os.environ, **(env or {})})
    server = RunningServer(process, port, log)
    try:
        _await(server, "/ready" if ready else "/health")
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        log.unlink()


def _await(server: RunningServer, path: str) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        assert server.process.poll() is None, f"the server ended: {server.log()}"
        try:
            if httpx.get(server.url + path).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"the server did not become ready: {server.log()}")
