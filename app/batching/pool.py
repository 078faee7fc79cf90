"""The workers: which are free, when the next batch may go, and which device will be done first."""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic

from app.batching.law import ServiceLaw
from app.batching.ticket import R, Rows

Run = Callable[[list[Any]], Awaitable[Rows[R]]]
"""One worker: takes the payloads of a batch, returns as many rows in the same order.

Raises WorkerDied when it can take no further batch; any other exception concerns the batch alone.
"""


class Trip:
    """A batch on its way: the worker that carries it, to which device, and how much of it is predicted to be left."""

    __slots__ = ("began", "bulk", "device", "done_before", "run", "seconds", "tokens")

    def __init__(self, run: Run[Any], device: "Device", tokens: int, bulk: bool, seconds: float, now: float) -> None:
        self.run = run
        self.device = device
        self.tokens = tokens
        self.bulk = bulk
        """Whether any of it is bulk."""
        self.seconds = seconds
        """For so long it should keep the device busy."""
        self.began = now
        self.done_before = device.done_s
        """What the device had done for each batch when this one came."""


class Device:
    """What several workers may share, and the batches on their way to it.

    Batches that run side by side share it evenly (processor sharing): beside one other, each takes twice as long. On a
    device that works by itself they run one after another instead, and the host prepares each for `host_s` seconds.
    """

    __slots__ = ("busy_s", "done_s", "free", "last_end", "running", "seen_at", "workers")

    def __init__(self) -> None:
        self.free: list[Run[Any]] = []
        self.workers = 0
        self.running: list[Trip] = []
        self.done_s = 0.0
        """Seconds it has worked for each of its batches since the beginning."""
        self.busy_s = 0.0
        """Seconds in which it had any batch."""
        self.seen_at = 0.0
        self.last_end = 0.0

    def see(self, now: float) -> None:
        """Work goes on until now."""
        if self.running:
            self.busy_s += now - self.seen_at
            self.done_s += (now - self.seen_at) / len(self.running)
        self.seen_at = now

    def queued_ends(self, host_s: float) -> float:
        """When it should be through with all, where it works by itself."""
        ends = self.last_end
        for trip in self.running:
            ends = max(ends, trip.began + host_s) + trip.seconds
        return ends

    def shared_end(self, now: float) -> float:
        """When it should be through with the first, where it is shared."""
        self.see(now)
        left = min(trip.seconds - (self.done_s - trip.done_before) for trip in self.running)
        return now + max(0.0, left) * len(self.running)


class Pool(Generic[R]):
    """Free workers, by device.

    The next batch goes to the device with the fewest tokens on their way, which, devices being alike, is the one that
    finishes first; among a device's workers, to the one that was freed last, whose caches are warm.

    Where `host_s` says that a device works by itself, its next batch may go when it is predicted to be free in just the
    time that the host needs to prepare it: preparation is hidden behind the batch before, and whatever arrives until
    then still gets in.

    Where workers share a device otherwise, the cores of a CPU, no more than `side_by_side` batches run at a time. An
    interactive batch may begin beside bulk all the same, where a worker is left: it takes its part of the device at
    once instead of waiting for a whole batch.
    """

    def __init__(
        self,
        workers: Sequence[Run[R]],
        devices: Sequence[Hashable] | None,
        law: ServiceLaw,
        host_s: Callable[[], float],
        side_by_side: int | None = None,
    ) -> None:
        """`devices` names each worker's device; by default each has one of its own. `side_by_side` is by default all
        workers of a device."""
        self._law = law
        self._host_s = host_s
        self._side_by_side = side_by_side or len(workers)
        by_name: dict[Hashable, Device] = {}
        for run, name in zip(workers, devices or range(len(workers)), strict=True):
            device = by_name.setdefault(name, Device())
            device.free.append(run)
            device.workers += 1
        self._devices = list(by_name.values())
        self.workers = len(workers)
        """Those that live, free or not."""
        self.n_running = 0
        """Batches on their way."""

    @property
    def parallel(self) -> int:
        """How many batches run side by side without slowing each other down."""
        return max(1, sum(device.workers > 0 for device in self._devices))

    @property
    def crowd(self) -> int:
        """How many batches run side by side on one device when there is much to do."""
        return 1 if self._host_s() else min(self._side_by_side, max([device.workers for device in self._devices]))

    def busy_seconds(self, now: float) -> list[float]:
        """How long each device has been busy since the beginning."""
        for device in self._devices:
            device.see(now)
        return [device.busy_s for device in self._devices]

    def takes_interactive(self) -> bool:
        """Whether an interactive batch may go, as far as the others on a shared device are concerned."""
        return bool(self._host_s()) or any(
            len(device.running) < self._side_by_side or any(trip.bulk for trip in device.running)
            for device in self._devices
            if device.free
        )

    def takes_bulk(self) -> bool:
        """Whether a batch with bulk may go, as far as the others on a shared device are concerned."""
        return bool(self._host_s()) or any(
            len(device.running) < self._side_by_side for device in self._devices if device.free
        )

    @property
    def keeps_a_spare(self) -> bool:
        """Whether a device has a worker more than batches run at a time: interactive items then need not travel with
        bulk."""
        return not self._host_s() and any(device.workers > self._side_by_side for device in self._devices)

    @property
    def slowdown(self) -> int:
        """How many times as long as alone the next batch should take, beside those that run already."""
        if self._host_s():
            return 1
        running = [len(device.running) for device in self._devices if device.free]
        return 1 + min(running) if running else self.crowd

    def ready_in_s(self, now: float) -> float | None:
        """In how many seconds the next batch may go: 0 for at once, None for not before a worker returns."""
        waits = [self._wait_s(device, now) for device in self._devices if device.free]
        return min(waits) if waits else None

    def free_in_s(self, now: float) -> float:
        """In how many seconds a batch that goes next should begin to run."""
        host_s = self._host_s()
        if host_s:
            ends = [device.queued_ends(host_s) for device in self._devices if device.workers]
        elif any(device.free for device in self._devices):
            return 0.0
        else:
            ends = [device.shared_end(now) for device in self._devices if device.running]
        return max(0.0, min(ends, default=now) - now)

    def take(self, tokens: int, now: float, *, bulk: bool = False) -> Trip:
        """Send a batch of so many tokens, with or without bulk, with the best free worker that may go."""
        device = min(
            [device for device in self._devices if device.free],
            key=lambda one: (self._wait_s(one, now), sum([trip.tokens for trip in one.running])),
        )
        device.see(now)
        trip = Trip(device.free.pop(), device, tokens, bulk, self._law.seconds(tokens), now)
        device.running.append(trip)
        self.n_running += 1
        return trip

    def give_back(self, trip: Trip, now: float) -> float:
        """The worker is free again; returns for how many seconds its batch would have kept the device busy alone."""
        seconds = self._end(trip, now)
        trip.device.free.append(trip.run)
        return seconds

    def lose(self, trip: Trip, now: float) -> None:
        """The worker has died."""
        self._end(trip, now)
        self.workers -= 1
        trip.device.workers -= 1

    def _wait_s(self, device: Device, now: float) -> float:
        host_s = self._host_s()
        return max(0.0, device.queued_ends(host_s) - host_s - now) if host_s and device.running else 0.0

    def _end(self, trip: Trip, now: float) -> float:
        """Forget a batch; returns how long it kept the device busy, as far as can be told from here."""
        device, host_s = trip.device, self._host_s()
        device.see(now)
        device.running.remove(trip)
        self.n_running -= 1
        seconds = now - max(trip.began + host_s, device.last_end) if host_s else device.done_s - trip.done_before
        device.last_end = now
        return max(0.0, seconds)
