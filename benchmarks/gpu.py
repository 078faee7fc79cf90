"""One short check of a GPU: are the vectors right, how fast is the forward, and how much of that arrives through HTTP.

Runs on a CPU too (`--device cpu`), and says which device it ran on. Needs neither wrk nor data.

usage: python -m benchmarks.gpu [--device cuda] [--seconds 10] [--connections 128]
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence

import aiohttp
import numpy as np
import torch

from app.vectorizers.base import WarmupStep
from app.vectorizers.sources import find_model
from app.vectorizers.text import TextVectorizer
from benchmarks.load import free_port, server

WORDS = ("card", "account", "where", "money", "please", "help", "arrived", "exchange", "rate", "top-up", "PIN", "why?")


def texts(count: int, longest: int, seed: int = 0) -> list[str]:
    """Ragged texts of 1 to `longest` words."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, longest))) for _ in range(count)]


def check_vectors(device: str) -> tuple[TextVectorizer, float]:
    """The vectorizer on the device, and the least cosine of its vectors to those of a CPU in float32."""
    source = find_model("bundled", None)
    reference = TextVectorizer(source, name="reference", device="cpu", dtype="float32", max_batch_tokens=2048)
    vectorizer = TextVectorizer(source, name="checked", device=device)
    ragged = texts(200, 300)
    return vectorizer, float((vectorizer(ragged) * reference(ragged)).sum(axis=1).min())


def sweep_table(steps: Sequence[WarmupStep]) -> str:
    """The warm-up's measurements, with throughput."""
    head = ["| tokens | texts | ms | tokens/s |", "| --- | --- | --- | --- |"]
    rows = [f"| {s.tokens} | {s.items} | {s.seconds * 1e3:.2f} | {s.tokens / s.seconds:.0f} |" for s in steps]
    return "\n".join(head + rows)


async def drive(url: str, connections: int, seconds: float) -> tuple[float, float, float]:
    """Closed-loop single texts: requests/s, and the median and 99th percentile of their times in ms."""
    pool, times, end = texts(1000, 20, seed=1), [], time.perf_counter() + seconds

    async def client(session: aiohttp.ClientSession, number: int) -> None:
        i = number
        while time.perf_counter() < end:
            started = time.perf_counter()
            async with session.post(url, json={"inputs": pool[i % len(pool)]}) as answer:
                await answer.read()
                assert answer.status == 200, await answer.text()
            times.append(time.perf_counter() - started)
            i += connections

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*[client(session, number) for number in range(connections)])
    p50, p99 = np.percentile(times, [50, 99])
    return len(times) / seconds, float(p50) * 1e3, float(p99) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=128)
    args = parser.parse_args()
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("No CUDA device is visible here; try --device cpu to see what this check does.")

    vectorizer, cosine = check_vectors(args.device)
    info = vectorizer.info
    print(f"{info.device}, {info.dtype}, torch {torch.__version__}, token budget {info.max_batch_tokens}")
    print(f"least cosine to float32 on a CPU, 200 ragged texts: {cosine:.6f}\n")
    print(sweep_table(info.warmup))
    if args.device.startswith("cuda"):
        print(f"\npeak memory: {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")
    del vectorizer

    port = free_port()
    command = ["-m", "app", "serve", "--device", args.device, "--port", str(port), "--log-level", "error"]
    with server(command, port, "/ready") as url:
        asyncio.run(drive(url + "/embed", args.connections, 2))
        rate, p50, p99 = asyncio.run(drive(url + "/embed", args.connections, args.seconds))
    print(f"\nthrough HTTP, {args.connections} connections: {rate:.0f} requests/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    print("(one Python client drives it: on a fast GPU that client is the limit, not the service)")
    if cosine < (0.99999 if info.dtype == "float32" else 0.995):
        sys.exit("The vectors are not right.")


if __name__ == "__main__":
    main()
