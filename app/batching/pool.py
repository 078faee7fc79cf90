"""The workers: which are free, when the next batch may go, and which device will be done first."""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic

from app.batching.law import ServiceLaw
from app.batching.ticket import R, Rows

Run = Callable[[list[Any]], Awaitable[Rows[R]]]
"""One worker: takes the payloads of a batch, returns as many rows in the same order.

Raises WorkerDied when it can take no further batch; any other exception concerns the batch alone.
"""


class Device:
    """What several workers may share: how much is on its way to it, and when it should be through."""

    __slots__ = ("ends_at", "free", "last_end", "running", "tokens")

    def __init__(self) -> None:
        self.free: list[Run[Any]] = []
        self.running: list[Trip] = []
        self.tokens = 0
        self.ends_at = 0.0
        """When the batches on their way should have run, on the batcher's clock, where they run one after another."""
        self.last_end = 0.0


class Trip:
    """A batch on its way: the worker that carries it, to which device, since when, and when it should be back."""

    __slots__ = ("began", "device", "ends_at", "run", "tokens")

    def __init__(self, run: Run[Any], device: Device, tokens: int, began: float) -> None:
        self.run = run
        self.device = device
        self.tokens = tokens
        self.began = began
        self.ends_at = began


class Pool(Generic[R]):
    """Free workers, by device.

    The next batch goes to the device with the fewest tokens on their way, which, devices being alike, is the one that
    finishes first; among a device's workers, to the one that was freed last, whose caches are warm.

    Where `host_s` says that a device works by itself, its workers' batches run one after another, and the host needs so
    many seconds to prepare one. Its next batch may go when it is predicted to be free in just that time: preparation is
    hidden behind the batch before, and whatever arrives until then still gets in.
    """

    def __init__(
        self,
        workers: Sequence[Run[R]],
        devices: Sequence[Hashable] | None,
        law: ServiceLaw,
        host_s: Callable[[], float],
    ) -> None:
        """`devices` names each worker's device; by default all share one."""
        self._law = law
        self._host_s = host_s
        by_name: dict[Hashable, Device] = {}
        for run, name in zip(workers, devices or [0] * len(workers), strict=True):
            by_name.setdefault(name, Device()).free.append(run)
        self._devices = list(by_name.values())
        self.workers = len(workers)
        """Those that live, free or not."""

    @property
    def parallel(self) -> int:
        """How many batches run side by side."""
        return len(self._devices) if self._host_s() else max(1, self.workers)

    def ready_in_s(self, now: float) -> float | None:
        """In how many seconds the next batch may go: 0 for at once, None for not before a worker returns."""
        waits = [self._wait_s(device, now) for device in self._devices if device.free]
        return min(waits) if waits else None

    @property
    def has_idle_device(self) -> bool:
        """Whether a device has nothing to do."""
        return any(device.free and not device.running for device in self._devices)

    @property
    def shares_devices(self) -> bool:
        """Whether batches that run side by side slow each other down, because workers share what they run on."""
        return self.workers > len(self._devices) and not self._host_s()

    def free_in_s(self, now: float) -> float:
        """In how many seconds a batch that goes next should begin to run."""
        host_s = self._host_s()
        if host_s:
            ends = [device.ends_at for device in self._devices if device.free or device.running]
        else:
            if any(device.free for device in self._devices):
                return 0.0
            ends = [trip.ends_at for device in self._devices for trip in device.running]
        return max(0.0, min(ends, default=now) - now)

    def take(self, tokens: int, now: float) -> Trip:
        """Send a batch of so many tokens with the best free worker that may go."""
        device = min(
            [device for device in self._devices if device.free],
            key=lambda one: (self._wait_s(one, now), one.tokens),
        )
        trip = Trip(device.free.pop(), device, tokens, now)
        device.running.append(trip)
        device.tokens += tokens
        host_s = self._host_s()
        begins = max(now + host_s, device.ends_at) if host_s else now
        trip.ends_at = begins + self._law.seconds(tokens)
        device.ends_at = max(device.ends_at, trip.ends_at)
        return trip

    def give_back(self, trip: Trip, now: float) -> float:
        """The worker is free again; returns for how many seconds the device worked on its batch alone."""
        began = self._end(trip, now)
        trip.device.free.append(trip.run)
        return now - began

    def lose(self, trip: Trip, now: float) -> None:
        """The worker has died."""
        self._end(trip, now)
        self.workers -= 1

    def _wait_s(self, device: Device, now: float) -> float:
        host_s = self._host_s()
        return max(0.0, device.ends_at - host_s - now) if host_s and device.running else 0.0

    def _end(self, trip: Trip, now: float) -> float:
        """Forget a batch; returns when the device began with it, as far as can be told from here."""
        device, host_s = trip.device, self._host_s()
        device.running.remove(trip)
        device.tokens -= trip.tokens
        began = max(trip.began + host_s, device.last_end) if host_s else trip.began
        device.last_end = device.ends_at = now
        for other in device.running:
            if host_s:  # it comes next, and the device has just been freed for it
                other.ends_at = max(now, other.began + host_s) + self._law.seconds(other.tokens)
            device.ends_at = max(device.ends_at, other.ends_at)
        return min(began, now)
