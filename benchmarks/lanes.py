"""Interactive queries beside bulk ingestion: what a search box feels while an index is built, and what that costs bulk.

Three phases in turns, on one running service: an open-loop Poisson stream of single queries alone; the same beside
closed-loop clients that post lists of passages; those clients alone. Latency counts from the intended send time.
`A/A` compares the queries alone with themselves, between rounds: that is the noise.

usage: python -m benchmarks.lanes [--seconds 10] [--rounds 3] [--rate 10] [--bulk-clients 2] [--bulk-size 64]
                                  [--url URL] [--texts FILE] [-- flags of a server of its own]
"""

import argparse
import asyncio
import random
import statistics
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from benchmarks.load import free_port, server

SOME_TEXTS = (
    "where is my card", "my card has not arrived yet and I need it before I travel", "how do I change my pin",
    "why was I charged twice for the same purchase last week", "can I get a refund", "the app does not let me log in",
    "what is the exchange rate for a transfer to another country", "top up failed",
)  # fmt: skip
SETTLE_S = 11.0
"""Longer than the service expects another query after one."""
PASSAGE_TEXTS = 8
"""A passage is so many texts one after another."""


class Phase(NamedTuple):
    """What one phase measured: latencies of the queries in ms, texts of bulk a second."""

    latencies_ms: list[float]
    bulk_per_s: float

    def quantile(self, q: float) -> float:
        return sorted(self.latencies_ms)[int(q * len(self.latencies_ms))]


class Load:
    """The clients, on one session."""

    def __init__(self, session: aiohttp.ClientSession, url: str, texts: list[str], args: argparse.Namespace) -> None:
        self._session = session
        self._url = url
        self._texts = texts
        self._args = args
        self._rng = random.Random(1)
        self._passages = [" ".join(self._rng.choices(texts, k=PASSAGE_TEXTS)) for _ in range(400)]
        self.statuses: Counter[int] = Counter()

    async def phase(self, *, queries: bool, bulk: bool) -> Phase:
        latencies: list[float] = []
        if not queries:
            await self._until_full_batches()
        end = time.perf_counter() + self._args.seconds
        clients = [asyncio.create_task(self._bulk(end)) for _ in range(self._args.bulk_clients if bulk else 0)]
        sent = []
        due = time.perf_counter()
        while queries and due < end:
            due += self._rng.expovariate(self._args.rate)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            sent.append(asyncio.create_task(self._query(due, latencies)))
        await asyncio.gather(*sent)
        return Phase(latencies, sum(await asyncio.gather(*clients)) / self._args.seconds)

    async def _until_full_batches(self) -> None:
        """Batches stay short for a while after the last query; what bulk reaches alone is measured after that."""
        await self._bulk(time.perf_counter() + SETTLE_S)

    async def _query(self, due: float, latencies: list[float]) -> None:
        await self._post(self._rng.choice(self._texts))
        latencies.append((time.perf_counter() - due) * 1e3)

    async def _bulk(self, end: float) -> float:
        texts = 0.0
        while (started := time.perf_counter()) < end:
            await self._post(self._rng.choices(self._passages, k=self._args.bulk_size))
            within = min(1.0, (end - started) / (time.perf_counter() - started))
            texts += self._args.bulk_size * within  # of the last list, what fell into the phase
        return texts

    async def _post(self, inputs: Any) -> None:
        async with self._session.post(self._url, json={"inputs": inputs}) as response:
            await response.read()
            self.statuses[response.status] += 1


async def measure(url: str, texts: list[str], args: argparse.Namespace) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        load = Load(session, url, texts, args)
        await load.phase(queries=True, bulk=True)  # warm-up
        p99s, bulks, alone_p99 = [], [], []
        print("| round | alone p50 | p99 | beside p50 | p99 | bulk beside | bulk alone |\n|" + " --- |" * 7)
        for turn in range(args.rounds):
            kinds = {"alone": (True, False), "beside": (True, True), "bulk": (False, True)}
            order = list(kinds) if turn % 2 == 0 else list(reversed(kinds))
            done = {kind: await load.phase(queries=kinds[kind][0], bulk=kinds[kind][1]) for kind in order}
            alone, beside, bulk = done["alone"], done["beside"], done["bulk"]
            alone_p99.append(alone.quantile(0.99))
            p99s.append(beside.quantile(0.99) / alone.quantile(0.99))
            bulks.append(beside.bulk_per_s / bulk.bulk_per_s)
            print(
                f"| {turn + 1} | {alone.quantile(0.5):.1f} ms | {alone.quantile(0.99):.1f} ms "
                f"| {beside.quantile(0.5):.1f} ms | {beside.quantile(0.99):.1f} ms "
                f"| {beside.bulk_per_s:.0f} texts/s | {bulk.bulk_per_s:.0f} texts/s |",
                flush=True,
            )
    print(f"\nbeside / alone, p99: {_spread(p99s)}")
    print(f"bulk beside / bulk alone: {_spread(bulks)}")
    print(f"A/A, p99 alone over its median: {_spread([one / statistics.median(alone_p99) for one in alone_p99])}")
    print(f"answers: {dict(load.statuses)}")


def _spread(ratios: list[float]) -> str:
    return f"× {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=10)
    parser.add_argument("--bulk-clients", type=int, default=2)
    parser.add_argument("--bulk-size", type=int, default=64)
    parser.add_argument("--url", help="a running service; by default one is started")
    parser.add_argument("--texts", type=Path, help="a file with a text in each line; a few built-in ones by default")
    parser.add_argument("flags", nargs="*", help="flags of the service that is started")
    args = parser.parse_args()
    texts = args.texts.read_text().splitlines() if args.texts is not None else list(SOME_TEXTS)
    with ExitStack() as stack:
        url = args.url
        if url is None:
            port = free_port()
            command = ["-m", "app", "serve", "--port", str(port), "--log-level", "error", *args.flags]
            url = stack.enter_context(server(command, port, "/ready"))
        asyncio.run(measure(url.rstrip("/") + "/embed", texts, args))


if __name__ == "__main__":
    main()
