"""Servers under load: starting them, driving them with wrk, and reporting alternated rounds."""

import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "benchmarks" / "post.lua"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of wrk: requests/s and latencies in ms."""

    rate: float
    p50: float
    p90: float
    p99: float
    longest: float


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(arguments: Sequence[str], port: int, ready_path: str, timeout_s: float = 120) -> Iterator[str]:
    """Run `python arguments…` as a server of its own until the block ends; yields its base URL once it is ready."""
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    url = f"http://127.0.0.1:{port}"
    try:
        await_ready(process, url + ready_path, timeout_s)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def await_ready(process: "subprocess.Popen[bytes]", url: str, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"The server ended with code {process.returncode}.")
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"The server was not ready within {timeout_s:.0f} s.")


def wrk(url: str, connections: int, seconds: int, texts: Path | None = None) -> Run:
    """Closed-loop requests over so many connections for so long; any error ends the benchmark."""
    if shutil.which("wrk") is None:
        raise SystemExit("This benchmark needs wrk (the package of that name).")
    env = {**os.environ, **({"TEXTS": str(texts)} if texts is not None else {})}
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--timeout", "30", "-s", str(SCRIPT), url]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    found = re.search(r"RESULT (\S+) (\S+) (\S+) (\S+) (\S+) (\d+)", done.stdout)
    if found is None or int(found[6]):
        raise SystemExit(f"wrk met errors:\n{done.stdout}{done.stderr}")
    return Run(*(float(found[i]) for i in range(1, 6)))


def alternate(
    runs: Sequence[tuple[str, str]], connections: int, seconds: int, rounds: int, texts: Path | None = None
) -> dict[str, list[Run]]:
    """Drive each (name, url) in turn, there and back (A B C C B A), so that drift falls on all alike; the first pass
    only warms up."""
    for _, url in runs:
        wrk(url, connections, 1, texts)
    results: dict[str, list[Run]] = {name: [] for name, _ in runs}
    for turn in range(rounds):
        for name, url in runs if turn % 2 == 0 else list(reversed(runs)):
            results[name].append(wrk(url, connections, seconds, texts))
            print(f"  round {turn + 1}/{rounds} {name:<16} {results[name][-1].rate:9.1f} requests/s", file=sys.stderr)
    return results


def table(results: dict[str, list[Run]]) -> str:
    """Medians, and the spread of the rate over the rounds as (max − min) / median."""
    lines = [
        "| server | requests/s | spread | p50 ms | p90 ms | p99 ms | max ms |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, runs in results.items():
        rates = [run.rate for run in runs]
        median = statistics.median(rates)
        rest = " | ".join(
            f"{statistics.median([getattr(run, what) for run in runs]):.2f}"
            for what in ("p50", "p90", "p99", "longest")
        )
        lines.append(f"| {name} | {median:.0f} | {(max(rates) - min(rates)) / median:.0%} | {rest} |")
    return "\n".join(lines)


def ratio(results: dict[str, list[Run]], over: str, under: str) -> str:
    """The median of the ratio of two rates within a round, with its range."""
    ratios = [a.rate / b.rate for a, b in zip(results[over], results[under], strict=True)]
    return f"{over} / {under}: × {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
