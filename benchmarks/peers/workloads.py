"""The workloads: what is asked of every contestant, and what is noted of it."""

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.peers.http_client import Client
from benchmarks.peers.processes import Service
from benchmarks.peers.shapes import Bulk, Reply, closed_loop, poisson, quantile

DEADLINE = "X-Request-Timeout-Ms"
"""The header that tells Convoy when an answer is useless; the others take no notice of it."""
GIVE_UP_S = 2.0
"""Under overload, a client hangs up after so long."""
BULK_PIPELINES, BULK_TEXTS = 2, 64


@dataclass(frozen=True, slots=True)
class Closed:
    """Users who wait for their answers."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    """CPU time of the server for each answer."""
    failed: int


@dataclass(frozen=True, slots=True)
class Steady:
    """Poisson arrivals at a rate that everybody can carry."""

    p50_ms: float
    p99_ms: float
    failed: int
    late_ms: float
    """By how much the driver was late, at p99."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """Queries alone and beside pipelines of lists."""

    alone_p50_ms: float
    alone_p95_ms: float
    beside_p50_ms: float
    beside_p95_ms: float
    bulk_per_s: float
    failed: int


@dataclass(frozen=True, slots=True)
class Overload:
    """More than it can carry."""

    goodput: float
    """Answers within the objective, as a share of its own capacity."""
    refused: float
    late: float
    gave_up: float
    """Shares of what was sent: refused or failed at once, answered too late, never answered."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """Clients that all leave before they are answered, and the one who comes after them."""

    usual_ms: float
    first_ms: float
    normal_after_ms: float
    """From their leaving until a single request was answered as usual again."""
    answered: int
    """Of them, before they left."""
    computed: float
    """How many texts' worth of CPU time was spent after they had left."""


class Driver:
    """Drives one service; texts go round and round, at the same places for everybody.

    `rest_s` is for how long CPU is watched where nothing is asked."""

    def __init__(self, texts: list[str], passages: list[str], rest_s: float = 1.0) -> None:
        self._texts = texts
        self._passages = passages
        self._rest_s = rest_s

    def singles(self, service: Service, headers: Mapping[str, str] | None = None) -> Iterator[bytes]:
        return itertools.cycle([service.wire.one(text, headers) for text in self._texts])

    def lists(self, service: Service) -> Iterator[bytes]:
        passages = itertools.cycle(self._passages)
        while True:
            yield service.wire.many([next(passages) for _ in range(BULK_TEXTS)])

    async def warm_up(self, service: Service, seconds: float) -> None:
        """Load of both kinds, unmeasured: after a pause, and before anything is measured."""
        async with Client(service.host, service.port) as client:
            await closed_loop(client, self.singles(service), 8, seconds)

    async def closed(self, service: Service, users: int, seconds: float) -> Closed:
        async with Client(service.host, service.port) as client:
            await closed_loop(client, self.singles(service), users, min(1.0, seconds / 4))
            cpu_s = service.cpu_s()
            replies = await closed_loop(client, self.singles(service), users, seconds)
            cpu_s = service.cpu_s() - cpu_s
        good = [reply.latency_ms for reply in replies if reply.status == 200]
        cpu_ms = cpu_s * 1e3 / max(1, len(good)) if service.observed else float("nan")
        return Closed(len(good) / seconds, quantile(good, 0.5), quantile(good, 0.99), cpu_ms, _failed(replies))

    async def steady(self, service: Service, rate_per_s: float, seconds: float, seed: int) -> Steady:
        async with Client(service.host, service.port) as client:
            replies = await poisson(client, self.singles(service), rate_per_s, seconds, seed=seed)
        good = [reply.latency_ms for reply in replies if reply.status == 200]
        late = [reply.late_ms for reply in replies]
        return Steady(quantile(good, 0.5), quantile(good, 0.99), _failed(replies), quantile(late, 0.99))

    async def mixed(self, service: Service, rate_per_s: float, seconds: float, seed: int) -> Mixed:
        async with Client(service.host, service.port) as client:
            alone = await poisson(client, self.singles(service), rate_per_s, seconds, seed=seed)
            bulk = Bulk(client, self.lists(service), BULK_TEXTS, BULK_PIPELINES)
            beside, per_s = await asyncio.gather(
                poisson(client, self.singles(service), rate_per_s, seconds, seed=seed + 1), bulk.texts_per_s(seconds)
            )
        good = [[reply.latency_ms for reply in replies if reply.status == 200] for replies in (alone, beside)]
        return Mixed(
            alone_p50_ms=quantile(good[0], 0.5),
            alone_p95_ms=quantile(good[0], 0.95),
            beside_p50_ms=quantile(good[1], 0.5),
            beside_p95_ms=quantile(good[1], 0.95),
            bulk_per_s=per_s,
            failed=_failed(alone) + _failed(beside) + bulk.failed,
        )

    async def overload(
        self, service: Service, capacity_per_s: float, factor: float, slo_ms: float, seconds: float, *, tell: bool,
        seed: int,
    ) -> Overload:  # fmt: skip
        requests = self.singles(service, {DEADLINE: f"{slo_ms:.0f}"} if tell else None)
        async with Client(service.host, service.port) as client:
            replies = await poisson(client, requests, factor * capacity_per_s, seconds, seed=seed, give_up_s=GIVE_UP_S)
            await self._until_usual(client, service, usual_ms=slo_ms / 2)
        return account(replies, slo_ms, capacity_per_s * seconds)

    async def leaving(self, service: Service, clients: int, stay_s: float, cpu_ms: float) -> Leaving:
        async with Client(service.host, service.port) as client:
            usual_ms = quantile([await self._single(client, service) for _ in range(10)], 0.5)
            idle_cpu = await self.idle_cpu(service)
            crowd = Client(service.host, service.port)
            await crowd.connect(clients)
            requests = self.singles(service)
            tasks = [asyncio.create_task(crowd.post(next(requests))) for _ in range(clients)]
            await asyncio.sleep(stay_s)
            answered = sum(task.done() for task in tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            left, cpu_s = time.perf_counter(), service.cpu_s()
            first_ms = await self._single(client, service)
            await self._until_usual(client, service, usual_ms)
            normal_after_ms = (time.perf_counter() - left) * 1e3
            await asyncio.sleep(self._rest_s)  # what it still does for nobody
            cpu_s = service.cpu_s() - cpu_s - idle_cpu * (time.perf_counter() - left)
        return Leaving(usual_ms, first_ms, normal_after_ms, answered, max(0.0, cpu_s * 1e3 / cpu_ms))

    async def idle_cpu(self, service: Service) -> float:
        """CPU that is used while nothing is asked, in parts of a core."""
        await asyncio.sleep(self._rest_s / 2)
        before = service.cpu_s()
        await asyncio.sleep(self._rest_s)
        return (service.cpu_s() - before) / self._rest_s

    async def _single(self, client: Client, service: Service) -> float:
        sent = time.perf_counter()
        await client.post(service.wire.one(self._texts[0]))
        return (time.perf_counter() - sent) * 1e3

    async def _until_usual(self, client: Client, service: Service, usual_ms: float, limit_s: float = 60) -> None:
        end = time.perf_counter() + limit_s
        while await self._single(client, service) > 2 * usual_ms + 5 and time.perf_counter() < end:
            pass


def account(replies: list[Reply], slo_ms: float, capacity: float) -> Overload:
    """What became of the requests; `capacity` is how many it could have answered in that time."""
    in_time = sum(reply.status == 200 and reply.latency_ms <= slo_ms for reply in replies)
    late = sum(reply.status == 200 and reply.latency_ms > slo_ms for reply in replies)
    gave_up = sum(reply.status == 0 for reply in replies)
    sent = max(1, len(replies))
    return Overload(in_time / capacity, (len(replies) - in_time - late - gave_up) / sent, late / sent, gave_up / sent)


def _failed(replies: list[Reply]) -> int:
    return sum(reply.status != 200 for reply in replies)
