"""A long stream beside an interactive client: what the server holds in memory, and what the client feels.

Texts go through one `POST /embed/stream` on a simulated device, in three phases of one run: a client that sends single
texts, alone; the same beside the stream; alone again, which against the first phase is the noise.

usage: python -m benchmarks.stream [--texts 200000] [--warm 10000] [--seconds 10] [--rate 20] [--format float]
                                   [--model fake://?dim=384&base_ms=2&item_ms=0.05]
"""

import argparse
import asyncio
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from benchmarks.load import ROOT, await_ready, free_port

CHUNK_LINES = 200


@dataclass
class Progress:
    """How far the stream is, and what the server held when it was how far."""

    answers: int = 0
    resident: list[tuple[int, int]] = field(default_factory=list)
    seconds: float = 0.0


def resident_bytes(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


async def lines(n: int) -> AsyncIterator[bytes]:
    for start in range(0, n, CHUNK_LINES):
        yield b"".join([b'"where is my card number %d"\n' % i for i in range(start, min(n, start + CHUNK_LINES))])


async def stream(session: aiohttp.ClientSession, pid: int, args: argparse.Namespace, progress: Progress) -> None:
    started = time.perf_counter()
    headers = {"content-type": "application/x-ndjson"}
    query = {"encoding_format": args.format}
    async with session.post("/embed/stream", params=query, data=lines(args.texts), headers=headers) as answer:
        answer.raise_for_status()
        noted = 0
        async for part in answer.content.iter_any():
            progress.answers += part.count(b"\n")
            if b'"error"' in part:
                raise SystemExit(f"An error in the stream: {part!r}")
            if progress.answers - noted >= args.warm:
                noted = progress.answers
                progress.resident.append((noted, resident_bytes(pid)))
    progress.seconds = time.perf_counter() - started
    if progress.answers != args.texts:
        raise SystemExit(f"{args.texts} texts brought {progress.answers} answers.")


async def query(session: aiohttp.ClientSession, due: float, i: int) -> float:
    async with session.post("/embed", json={"inputs": f"a query {i}"}) as answer:
        await answer.read()
        answer.raise_for_status()
    return (time.perf_counter() - due) * 1e3


async def queries(session: aiohttp.ClientSession, rate: float, until: "asyncio.Task[object]") -> list[float]:
    """Single texts at random moments, so many a second, each latency in ms from when it was due."""
    rng, due = random.Random(1), time.perf_counter()
    sent: list[asyncio.Task[float]] = []
    while not until.done():
        due += rng.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        sent.append(asyncio.create_task(query(session, due, len(sent))))
    await until
    return await asyncio.gather(*sent)


def told(name: str, latencies_ms: list[float]) -> None:
    ordered = sorted(latencies_ms)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    print(f"{name:<24} {len(ordered):5d} queries   p50 {p50:7.2f} ms   p99 {p99:7.2f} ms   max {ordered[-1]:7.2f} ms")


async def measure(url: str, pid: int, args: argparse.Namespace) -> None:
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=None)) as session:
        for name in ("queries alone", "beside the stream", "alone again"):
            progress = Progress()
            if name == "beside the stream":
                until: asyncio.Task[object] = asyncio.create_task(stream(session, pid, args, progress))
            else:
                until = asyncio.create_task(asyncio.sleep(args.seconds))
            told(name, await queries(session, args.rate, until))
            if progress.answers:
                first = progress.resident[0][1]
                most = max(size for _, size in progress.resident)
                print(
                    f"{progress.answers} texts in {progress.seconds:.1f} s, {progress.answers / progress.seconds:.0f} "
                    f"a second; resident after {progress.resident[0][0]}: {first / 1e6:.1f} MB, most after that: "
                    f"{most / 1e6:.1f} MB, {(most - first) / 1e6:+.1f} MB"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--warm", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--format", choices=("float", "base64"), default="float")
    parser.add_argument("--model", default="fake://?dim=384&base_ms=2&item_ms=0.05")
    args = parser.parse_args()
    port = free_port()
    command = ["-m", "app", "serve", "--model", args.model, "--port", str(port), "--log-level", "error"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment) as process:
        try:
            await_ready(process, f"http://127.0.0.1:{port}/ready", 120)
            asyncio.run(measure(f"http://127.0.0.1:{port}", process.pid, args))
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
