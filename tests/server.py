"""A real server process on a real port, for tests."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp
import httpx

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer, read to its end."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes
    seconds: float

    def json(self) -> Any:
        return json.loads(self.content)


class Crowd:
    """Many clients at once, each on a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=300)
        self._session = aiohttp.ClientSession(self._url, connector=aiohttp.TCPConnector(limit=0), timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str) -> Answered:
        return await self._read(self._session.get(path))

    async def embed(self, inputs: Any, **options: Any) -> Answered:
        return await self._read(self._session.post("/embed", json={"inputs": inputs, **options}))

    @staticmethod
    async def _read(exchange: Any) -> Answered:
        started = time.perf_counter()
        async with exchange as response:
            content = await response.read()
            return Answered(response.status, response.headers, content, time.perf_counter() - started)


class RunningServer:
    """`python -m app serve` as a user starts it."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._log = log

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60)

    def crowd(self) -> Crowd:
        return Crowd(self.url)

    def embed_all(self, *inputs: Any) -> list[Answered]:
        """Send so many requests all at once."""

        async def main() -> list[Answered]:
            async with self.crowd() as crowd:
                return await asyncio.gather(*[crowd.embed(one) for one in inputs])

        return asyncio.run(main())

    def metric(self, series: str) -> float:
        """The value of one series as `/metrics` has it now, named with its labels."""
        return metric_in(httpx.get(self.url + "/metrics").text, series)

    def accepted(self) -> float:
        """Inputs accepted so far: dispatched, or with a place in the queue."""
        text = httpx.get(self.url + "/metrics").text
        return sum(
            metric_in(text, series)
            for series in (
                "convoy_batch_items_sum",
                'convoy_queue_items{lane="interactive"}',
                'convoy_queue_items{lane="bulk"}',
            )
        )

    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text()

    async def until(self, value: Callable[[], float], at_least: float, timeout_s: float = 20) -> None:
        """Wait until a value of the server's has grown enough."""
        end = time.monotonic() + timeout_s
        while (found := await asyncio.to_thread(value)) < at_least:
            assert time.monotonic() < end, f"{at_least} was not reached; it is {found}"
            await asyncio.sleep(0.01)

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
