"""The shapes of load: users who wait for their answers, requests that come when they come, and pipelines of lists."""

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.peers.http_client import Client


@dataclass(frozen=True, slots=True)
class Reply:
    """One request as its client saw it."""

    status: int
    latency_ms: float
    """From the moment it was due to be sent."""
    late_ms: float = 0.0
    """How much later than due the driver sent it: its own fault, and part of the latency."""


async def closed_loop(client: Client, requests: Iterator[bytes], users: int, seconds: float) -> list[Reply]:
    """So many users for so long, each sending its next request when its last is answered.

    Those still under way at the end are waited for and left out."""
    replies: list[Reply] = []
    end = time.perf_counter() + seconds

    async def user() -> None:
        while (sent := time.perf_counter()) < end:
            answer = await client.post(next(requests))
            if (done := time.perf_counter()) <= end:
                replies.append(Reply(answer.status, (done - sent) * 1e3))

    await asyncio.gather(*(user() for _ in range(users)))
    return replies


async def poisson(
    client: Client, requests: Iterator[bytes], rate_per_s: float, seconds: float, *, seed: int, give_up_s: float = 60.0
) -> list[Reply]:
    """Requests at random moments, so many a second on average, whatever becomes of those before them."""
    rng = random.Random(seed)
    loop = asyncio.get_running_loop()
    replies: list[Reply] = []

    async def one(due: float, request: bytes) -> None:
        late_ms = (time.perf_counter() - due) * 1e3
        answer = await client.post(request, give_up_s)
        replies.append(Reply(answer.status, (time.perf_counter() - due) * 1e3, late_ms))

    tasks = []
    due = begun = time.perf_counter()
    while (due := due + rng.expovariate(rate_per_s)) < begun + seconds:
        if (wait_s := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait_s)
        tasks.append(loop.create_task(one(due, next(requests))))
    await asyncio.gather(*tasks)
    return replies


class Bulk:
    """Pipelines that post lists of texts, each its next list when its last is answered, until told to stop."""

    def __init__(self, client: Client, requests: Iterator[bytes], texts_each: int, pipelines: int) -> None:
        self._client = client
        self._requests = requests
        self._texts_each = texts_each
        self._pipelines = pipelines
        self.failed = 0

    async def texts_per_s(self, seconds: float) -> float:
        """Post for so long; of a list that is under way at the end, its share within the time counts."""
        end = time.perf_counter() + seconds
        return sum(await asyncio.gather(*(self._pipeline(end) for _ in range(self._pipelines)))) / seconds

    async def _pipeline(self, end: float) -> float:
        texts = 0.0
        while (sent := time.perf_counter()) < end:
            answer = await self._client.post(next(self._requests))
            if answer.status == 200:
                texts += self._texts_each * min(1.0, (end - sent) / (time.perf_counter() - sent))
            else:
                self.failed += 1
        return texts


def quantile(values: list[float], q: float) -> float:
    """The value that a share `q` of them does not exceed; not a number where there is none."""
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] if values else float("nan")
