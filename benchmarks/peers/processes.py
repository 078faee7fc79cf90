"""The servers as processes: started, paused while others are measured, resumed, asked for CPU and memory, stopped."""

import os
import signal
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from benchmarks.load import ROOT
from benchmarks.peers.environments import PeerUnavailable
from benchmarks.peers.wire import Wire

MARK = "CONVOY_PEER_MARK"
"""A variable whose value tells a server's processes from all others, whoever has become their parent."""


class Service:
    """A server that answers at `host`:`port`, and the processes that it consists of (none, where it runs elsewhere)."""

    def __init__(
        self,
        name: str,
        wire: Wire,
        host: str,
        port: int,
        processes: Sequence[psutil.Process] = (),
        start_s: float = float("nan"),
    ) -> None:
        self.name = name
        self.wire = wire
        self.host = host
        self.port = port
        self.start_s = start_s
        """From the start of its process to its first answer."""
        self._processes = processes

    @property
    def observed(self) -> bool:
        """Whether its processes are known."""
        return bool(self._processes)

    def cpu_s(self) -> float:
        """CPU time that its processes have used so far, in seconds."""
        total = 0.0
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def memory_mb(self) -> float:
        """What it holds of the machine's memory, in MB, with shared pages counted in shares."""
        total = 0
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                total += process.memory_full_info().pss
        return total / 1e6

    def pause(self) -> None:
        """Stop all of its processes, so that it takes no core from the one that is measured."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Resumed in the block, paused after it."""
        self.resume()
        try:
            yield
        finally:
            self.pause()


def elsewhere(name: str, wire: Wire, url: str) -> Service:
    """A server that somebody else runs."""
    parts = urlsplit(url)
    return Service(name, wire, parts.hostname or "127.0.0.1", parts.port or 80)


@contextmanager
def started(
    name: str, wire: Wire, command: Sequence[str], port: int, variables: Mapping[str, str], log: Path, timeout_s: float
) -> Iterator[Service]:
    """Run the command until the block ends; yields the service once it has answered a text.

    Raises PeerUnavailable with the end of its log where it ends or does not answer in time."""
    mark = uuid.uuid4().hex
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": "", **variables, MARK: mark}
    begun = time.monotonic()
    with log.open("wb") as output:
        root = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _await_answer(wire, root, port, log, begun + timeout_s)
        start_s = time.monotonic() - begun
        yield Service(name, wire, "127.0.0.1", port, _marked(mark, root.pid), start_s)
    finally:
        _stop(mark, root)


def _await_answer(wire: Wire, root: "subprocess.Popen[bytes]", port: int, log: Path, until: float) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{wire.path}",
        data=wire.body(["ready?"] if wire.always_list else "ready?"),
        headers={"content-type": "application/json"},
    )
    while time.monotonic() < until:
        if root.poll() is not None:
            raise PeerUnavailable(f"its server ended with code {root.returncode}: {_last_line(log)}")
        with suppress(OSError), urllib.request.urlopen(request, timeout=10):  # OSError: not listening, or not ready
            return
        time.sleep(0.1)
    raise PeerUnavailable(f"its server did not answer in time: {_last_line(log)}")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _marked(mark: str, root: int) -> list[psutil.Process]:
    """The root, all below it, and all that bear the mark."""
    found = {}
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(root)
        found = {process.pid: process for process in (top, *top.children(recursive=True))}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                found[process.pid] = process
    return list(found.values())


def _stop(mark: str, root: "subprocess.Popen[bytes]") -> None:
    """Ask the root to end, then end whatever is left."""
    processes = _marked(mark, root.pid)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)
    root.terminate()
    with suppress(subprocess.TimeoutExpired):
        root.wait(20)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    root.wait()
