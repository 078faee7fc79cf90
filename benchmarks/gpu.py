"""One short check of a GPU, in under five minutes: are the vectors right, how much of the card does the forward use,
does the host keep up, and how much of that arrives through HTTP.

Runs on a CPU too (`--device cpu`), where the parts that need a card say so. Needs neither wrk nor data.

usage: python -m benchmarks.gpu [--device cuda] [--seconds 10] [--connections 128] [--quick]
"""

import argparse
import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import aiohttp
import numpy as np
import torch

from app.vectorizers.base import Matrix, WarmupStep
from app.vectorizers.dtypes import DTYPES
from app.vectorizers.forward.cuda import SLOTS, CudaForward
from app.vectorizers.loading import LoadedModel
from app.vectorizers.sources import find_model
from app.vectorizers.text import TextVectorizer
from app.vectorizers.tokenizer import TokenIds
from app.vectorizers.warmup import Thoroughness
from benchmarks.load import free_port, server

WORDS = ("card", "account", "where", "money", "please", "help", "arrived", "exchange", "rate", "top-up", "PIN", "why?")
LEAST_COSINE = {"float32": 0.99999, "float16": 0.999, "bfloat16": 0.995}
MATRIX = 4096
COPY_BYTES = 2**28


def texts(count: int, longest: int, seed: int = 0) -> list[str]:
    """Ragged texts of 1 to `longest` words."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, longest))) for _ in range(count)]


def least_cosine(rows: Matrix, expected: Matrix) -> float:
    """Between rows of unit length."""
    return float((rows * expected).sum(axis=1).min())


def check_vectors(vectorizer: TextVectorizer, n_texts: int) -> dict[str, float]:
    """Least cosine to float32 on a CPU: so many ragged texts at once, one by one, and (on a card) without recorded
    forwards; on a card, anything that waits for the device on the launching side is an error meanwhile."""
    reference = TextVectorizer(
        find_model("bundled", None), name="reference", device="cpu", dtype="float32", warmup="off"
    )
    ragged = texts(n_texts, 300)
    expected = reference(ragged)
    few = slice(0, n_texts // 5)
    forward = vectorizer._forward
    with ExitStack() as stack:
        if isinstance(forward, CudaForward):
            torch.cuda.set_sync_debug_mode("error")
            stack.callback(torch.cuda.set_sync_debug_mode, "default")
        found = {
            "all at once": least_cosine(vectorizer(ragged), expected),
            "one by one": least_cosine(np.concatenate([vectorizer([text]) for text in ragged[few]]), expected[few]),
        }
        if isinstance(forward, CudaForward):
            ladder, forward.ladder = forward.ladder, None
            stack.callback(setattr, forward, "ladder", ladder)
            eager = np.concatenate([vectorizer([text]) for text in ragged[few]])
            found["one by one, not recorded"] = least_cosine(eager, expected[few])
    return found


def sweep_table(steps: Sequence[WarmupStep], flops_per_token: float) -> str:
    """The warm-up's measurements, with throughput and the arithmetic of the linear layers it stands for."""
    head = ["| tokens | texts | ms | tokens/s | TFLOP/s |", "| --- | --- | --- | --- | --- |"]
    rows = [
        f"| {s.tokens} | {s.items} | {s.seconds * 1e3:.2f} | {s.tokens / s.seconds:.0f} "
        f"| {s.tokens / s.seconds * flops_per_token / 1e12:.2f} |"
        for s in steps
    ]
    return "\n".join(head + rows)


def linear_flops_per_token() -> float:
    """Two for each weight of the bundled model's linear layers."""
    model = LoadedModel(find_model("bundled", None), torch.device("cpu"), torch.float32).model
    layers = [module for module in model[0].auto_model.encoder.modules() if isinstance(module, torch.nn.Linear)]  # type: ignore[union-attr]
    return 2.0 * sum(layer.weight.numel() for layer in layers)


def best_seconds(run: Callable[[], object], device: torch.device, rounds: int = 10) -> float:
    """The best of some rounds, each to its end on the device."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - started)
    return best


def ceilings(device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """What a bare matrix product and a bare copy reach here: TFLOP/s, and GB/s read and written."""
    size = MATRIX if device.type == "cuda" else MATRIX // 4
    a = torch.randn(size, size, device=device).to(dtype)
    matrix = 2 * size**3 / best_seconds(lambda: a @ a, device) / 1e12
    data = torch.zeros(COPY_BYTES // (1 if device.type == "cuda" else 16), dtype=torch.uint8, device=device)
    target = torch.empty_like(data)
    return matrix, 2 * data.numel() / best_seconds(lambda: target.copy_(data), device) / 1e9


def full_batch(vectorizer: TextVectorizer) -> list[TokenIds]:
    """Ragged texts of about a query's length, as many as the budget takes."""
    batch: list[TokenIds] = []
    for text in vectorizer._encode(texts(4096, 30, seed=2)):
        if sum(one.n_tokens for one in batch) + text.n_tokens > vectorizer.info.max_batch_tokens:
            break
        batch.append(text)
    return batch


def batch_seconds(vectorizer: TextVectorizer, batch: list[TokenIds], callers: int, seconds: float) -> float:
    """Wall seconds a batch, with so many threads calling side by side."""
    end = time.perf_counter() + seconds
    counts = [0] * callers

    def call(caller: int) -> None:
        while time.perf_counter() < end:
            vectorizer(batch)
            counts[caller] += 1

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(callers)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - started) / sum(counts)


def report_host(vectorizer: TextVectorizer, seconds: float) -> None:
    """What the host adds to the device's own time for full batches, alone and with the next batch staged meanwhile."""
    batch = full_batch(vectorizer)
    vectorizer(batch)
    alone = batch_seconds(vectorizer, batch, 1, seconds)
    line = f"a full batch of {len(batch)} texts: {alone * 1e3:.2f} ms with one caller"
    forward = vectorizer._forward
    if not isinstance(forward, CudaForward):
        print(f"{line} (a CPU has no device of its own to keep busy)")
        return
    with torch.inference_mode():
        device = forward.device_seconds(batch)
    staged = batch_seconds(vectorizer, batch, SLOTS, seconds)
    print(f"{line}, {staged * 1e3:.2f} ms with {SLOTS}, {device * 1e3:.2f} ms on the device itself:")
    print(f"between batches the device waits {(alone - device) / alone:.0%} and {(staged - device) / staged:.0%}")


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


def report_http(device: str, warmup: str, connections: int, seconds: float) -> None:
    """Single texts through the whole service, in a process of its own."""
    port = free_port()
    command = ["-m", "app", "serve", "--device", device, "--port", str(port), "--warmup", warmup]
    command += ["--log-level", "error"]
    with server(command, port, "/ready") as url:
        asyncio.run(drive(url + "/embed", connections, min(2, seconds)))
        for count in (1, connections):
            rate, p50, p99 = asyncio.run(drive(url + "/embed", count, seconds))
            print(f"through HTTP, {count} connections: {rate:.0f} requests/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    print("(one Python client drives it: on a fast GPU that client is the limit, not the service)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument("--quick", action="store_true", help="fewer texts and a quick warm-up: to see that it runs")
    args = parser.parse_args()
    warmup: Thoroughness = "quick" if args.quick else "full"
    n_texts = 30 if args.quick else 200
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("No CUDA device is visible here; try --device cpu to see what this check does.")

    vectorizer = TextVectorizer(
        find_model("bundled", None), name="checked", device=args.device, dtype=args.dtype, warmup=warmup
    )
    info = vectorizer.info
    print(f"{info.device}, {info.dtype}, torch {torch.__version__}")
    print(f"forward: {info.details['forward']}, token budget {info.max_batch_tokens}")
    cosines = check_vectors(vectorizer, n_texts)
    for how, cosine in cosines.items():
        print(f"least cosine to float32 on a CPU, {how}: {cosine:.6f}")
    device = torch.device(args.device)
    matrix, copy = ceilings(device, DTYPES[info.dtype])
    print(f"\n{sweep_table(info.warmup, linear_flops_per_token())}\n")
    print(f"ceilings measured here: matrix product {matrix:.2f} TFLOP/s, copy {copy:.0f} GB/s")
    report_host(vectorizer, args.seconds / 2)
    if device.type == "cuda":
        print(f"peak memory: {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")
    report_http(args.device, warmup, args.connections, args.seconds)
    if min(cosines.values()) < LEAST_COSINE[info.dtype]:
        sys.exit("The vectors are not right.")


if __name__ == "__main__":
    main()
