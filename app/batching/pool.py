"""The workers: which are free, and which of them will be done first."""

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple

from app.batching.ticket import R, Rows

Run = Callable[[list[Any]], Awaitable[Rows[R]]]
"""One worker: takes the payloads of a batch, returns as many rows in the same order.

Raises WorkerDied when it can take no further batch; any other exception concerns the batch alone.
"""


class Seat(NamedTuple):
    """A worker, and the device that it works on, which may serve others too."""

    run: Run[Any]
    device: Hashable


class Pool(Generic[R]):
    """Free workers. The next batch goes to the device with the fewest tokens on their way, which, devices being alike,
    is the one that finishes first; among equals, to the worker that was freed last, whose caches are warm."""

    def __init__(self, workers: Sequence[Run[R]], devices: Sequence[Hashable] | None = None) -> None:
        """`devices` names each worker's device; by default all share one."""
        self._free = [Seat(run, device) for run, device in zip(workers, devices or [0] * len(workers), strict=True)]
        self._tokens: Counter[Hashable] = Counter()
        self.workers = len(workers)
        """Those that live, free or not."""

    def __bool__(self) -> bool:
        return bool(self._free)

    def take(self, tokens: int) -> Seat:
        """The best free worker for a batch of so many tokens."""
        seat: Seat = min(reversed(self._free), key=lambda one: self._tokens[one.device])
        self._free.remove(seat)
        self._tokens[seat.device] += tokens
        return seat

    def give_back(self, seat: Seat, tokens: int) -> None:
        """It is free again."""
        self._tokens[seat.device] -= tokens
        self._free.append(seat)

    def lose(self, seat: Seat, tokens: int) -> None:
        """It has died."""
        self._tokens[seat.device] -= tokens
        self.workers -= 1
