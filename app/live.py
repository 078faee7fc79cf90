"""Live figures: a sample a second of what the service does, for the dashboard and whoever else reads along."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import orjson
import structlog

from app.api.ledger import Ledger
from app.diagnosis import diagnose
from app.loop_lag import LoopLag
from app.metrics import POWERS_OF_TWO, Metrics, Totals
from app.sample import Sample, numbers_of, of_answers, of_batches, of_requests

log = structlog.get_logger(__name__)

EVERY_S = 1.0
KEPT = 120
"""Samples that a new reader gets to begin with."""
WINDOW = 10
"""The diagnosis looks at so many."""


class Now(NamedTuple):
    """What the service is at this moment: its state, items and tokens by lane, and the share of the best throughput
    that a batch of so many tokens reaches, None where that is not known."""

    state: str
    queue: Mapping[str, Mapping[str, int]]
    reach: Callable[[float], float | None]


class Live:
    """Takes the samples, keeps the last ones, and hands each to whoever waits for it.

    Everything is bounded: a sample is encoded once for all readers, and a reader that is slow misses samples instead of
    having them queued.
    """

    def __init__(
        self,
        metrics: Metrics,
        ledger: Ledger,
        *,
        work_routes: Sequence[str],
        now: Callable[[], Now],
        hello: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Only requests to `work_routes` are counted; `hello` describes the service."""
        self._metrics = metrics
        self._ledger = ledger
        self._lag = LoopLag(metrics.loop_was_late)
        self._work_routes = frozenset(work_routes)
        self._now = now
        self._hello = hello
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._greeting = b""
        self._latest = b""
        self._number = 0
        self._news = asyncio.Event()
        self._ended = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take samples until the block ends; then every reader's stream ends too."""
        tasks = [asyncio.create_task(self._lag.run()), asyncio.create_task(self._sample_on())]
        for task in tasks:
            task.add_done_callback(_report_defect)
        try:
            yield
        finally:
            self._ended = True
            self._tell()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def events(self) -> AsyncIterator[bytes]:
        """What a new reader gets: the description, past samples, and then each new one, as server-sent events."""
        greeting, number = self._greeting, self._number
        yield b"".join([greeting, *(_event("sample", sample) for sample in self._samples)])
        while not (self._ended and number == self._number):
            if number == self._number:
                await self._news.wait()
                continue
            number = self._number
            if greeting is not self._greeting:
                greeting = self._greeting
                yield greeting
            yield self._latest

    async def _sample_on(self) -> None:
        before, then = self._metrics.totals(), time.perf_counter()
        self._greet()
        while True:
            await asyncio.sleep(EVERY_S)
            after, now = self._metrics.totals(), time.perf_counter()
            self._take(before, after, now - then)
            before, then = after, now

    def _take(self, before: Totals, after: Totals, seconds: float) -> None:
        page = self._ledger.turn()
        self._metrics.slow_requests(page.n_slow)
        sample = {
            "at": time.time(),
            "seconds": seconds,
            **of_requests(before, after, self._work_routes),
            **of_answers(page),
            **of_batches(before, after, seconds),
            "loop_lag_ms": self._lag.take_longest_s() * 1e3,
        }
        now = self._now()
        sample["state"], sample["queue"] = now.state, now.queue
        self._samples.append(sample)
        sample["held_back"] = diagnose(now.state, numbers_of(list(self._samples)[-WINDOW:], now.reach))._asdict()
        self._greet()
        self._latest = _event("sample", sample)
        self._number += 1
        if now.state == "draining":
            self._ended = True  # so that the server's last connections need not be waited for
        self._tell()

    def _greet(self) -> None:
        greeting = _event("hello", {**self._hello(), "batch_bounds": [int(bound) for bound in POWERS_OF_TWO]})
        if greeting != self._greeting:
            self._greeting = greeting

    def _tell(self) -> None:
        self._news.set()
        self._news.clear()


def _report_defect(task: "asyncio.Task[None]") -> None:
    """Without its samples the service goes on, but somebody should know."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the live figures have stopped, which is a defect", exc_info=error)


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY))
