"""A device of the tests' own: it takes virtual time, does as it is told, and remembers what reached it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from app.batching import LANES, Batcher, Cause, Departure, LaneName, Outcome, Policy
from tests.virtual_clock import now


class Device:
    """One worker for a Batcher: `base_s + item_s·items` a batch; `fault` may raise for a batch."""

    def __init__(
        self, base_s: float = 0.1, item_s: float = 0.0, fault: Callable[[list[Any]], None] | None = None
    ) -> None:
        self.base_s = base_s
        self.item_s = item_s
        self.fault = fault
        self.batches: list[list[Any]] = []

    async def __call__(self, payloads: list[Any]) -> list[Any]:
        self.batches.append(list(payloads))
        await asyncio.sleep(self.base_s + self.item_s * len(payloads))
        if self.fault is not None:
            self.fault(payloads)
        return [("row", payload) for payload in payloads]

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]


class Tally:
    """Keeps every fact that a batcher reports."""

    def __init__(self) -> None:
        self.ended: dict[Outcome, int] = {"answered": 0, "shed": 0, "expired": 0, "abandoned": 0, "failed": 0}
        self.shared = 0
        self.batches: list[tuple[int, int, float]] = []
        """Of each batch: how many items it carried, how many it left waiting, how long it took in seconds."""
        self.waits_s: list[float] = []
        self.causes: list[Cause] = []
        self.departures: list[Departure] = []
        self.tags: list[object] = []
        self.splits = 0
        self.budgets: list[int] = []
        self.lost: list[int] = []
        self.failures: list[Exception] = []
        self.stopped: list[BaseException] = []

    def items_ended(self, lane: LaneName, outcome: Outcome, items: int) -> None:
        self.ended[outcome] += items

    def items_shared(self, items: int) -> None:
        self.shared += items

    def batch_dispatched(self, batch: Departure) -> None:
        assert 0 < batch.items <= batch.tokens
        self.departures.append(batch)

    def requests_boarded(
        self, lane: LaneName, prepared_s: Sequence[float], waited_s: Sequence[float], causes: Sequence[Cause]
    ) -> None:
        self.waits_s.extend(waited_s)
        self.causes.extend(causes)

    def batch_finished(self, batch: Departure, seconds: float, tags: Sequence[object]) -> None:
        self.batches.append((batch.items, batch.left_items, seconds))
        self.tags.extend(tags)

    def batch_split(self, error: Exception) -> None:
        self.splits += 1

    def budget_lowered(self, max_batch_tokens: int) -> None:
        self.budgets.append(max_batch_tokens)

    def worker_lost(self, error: Exception, workers_left: int) -> None:
        self.lost.append(workers_left)

    def item_failed(self, error: Exception) -> None:
        self.failures.append(error)

    def batcher_stopped(self, error: BaseException) -> None:
        self.stopped.append(error)


POLICY = Policy(max_batch_items=8, max_batch_tokens=1000, max_queue_items=100, max_queue_tokens=100_000)
IN_POLICY = {field.name for field in fields(Policy)}


def batcher_over(*devices: Any, facts: Tally | None = None, **options: Any) -> Batcher[Any, Any]:
    """A batcher over these devices, on the running loop's clock; options are the policy's or the batcher's own."""
    policy = replace(POLICY, **{name: value for name, value in options.items() if name in IN_POLICY})
    own = {name: value for name, value in options.items() if name not in IN_POLICY}
    return Batcher(list(devices), policy=policy, facts=facts or Tally(), **{"clock": now, **own})


async def submit(batcher: Batcher[Any, Any], *items: Any, size: int = 1, **options: Any) -> list[Any]:
    """Submit items of one size; returns what the rows say they were made from."""
    answer = await batcher.submit(items, [size] * len(items), **options)
    return [payload for _, payload in answer.rows]


async def start(batcher: Batcher[Any, Any], *items: Any, **options: Any) -> asyncio.Task[list[Any]]:
    """Submit in the background, and let the batcher see it."""
    task = asyncio.create_task(submit(batcher, *items, **options))
    await settle()
    return task


async def settle() -> None:
    """Let everything that can run now run, without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)


def waiting(batcher: Batcher[Any, Any]) -> int:
    """Items that wait, in both lanes."""
    return sum(batcher.waiting_items(lane) for lane in LANES)
