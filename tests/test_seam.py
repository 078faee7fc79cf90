"""The seam between batches on a device that works by itself: sealed just early enough to hide what the host does."""

import asyncio
from typing import Any

import numpy as np
import pytest

from app.batching import ServiceLaw
from tests.queueing import Service
from tests.simulated import Tally, batcher_over
from tests.traffic import Phase, drive
from tests.virtual_clock import now, run_virtually

SERVICE = Service(base_s=0.005, item_s=0.0002, max_items=64)
HOST_S = 0.2 * SERVICE.seconds(64)


class AsynchronousDevice:
    """Two workers for one device. A worker first keeps the host busy with its batch, while the device may run the one
    before; then the device runs it, when its turn comes."""

    def __init__(self, host_s: float, jitter: float = 0.0) -> None:
        self.host_s = host_s
        self.busy: list[tuple[float, float]] = []
        """When the device began with each batch, and when it ended."""
        self._turn = asyncio.Lock()
        self._random = np.random.default_rng(0)
        self._jitter = jitter

    async def worker(self, payloads: list[Any]) -> list[Any]:
        await asyncio.sleep(self.host_s)
        async with self._turn:
            began = now()
            noise = float(self._random.uniform(1 - self._jitter, 1 + self._jitter))
            await asyncio.sleep(SERVICE.seconds(len(payloads)) * noise)
            self.busy.append((began, now()))
        return payloads

    @property
    def idle_share(self) -> float:
        """Of the time between its first batch and its last, the part in which it did nothing."""
        total = self.busy[-1][1] - self.busy[0][0]
        return 1 - sum(end - began for began, end in self.busy) / total


def over(device: AsynchronousDevice, workers: int, *, seals_late: bool, facts: Tally | None = None) -> Any:
    return batcher_over(
        *[device.worker] * workers,
        devices=["the one"] * workers,
        facts=facts,
        host_s=(lambda: device.host_s) if seals_late else (lambda: 0.0),
        law=ServiceLaw(SERVICE.base_s, SERVICE.item_s),
        max_batch_items=64,
        max_queue_items=10_000,
    )


def saturated(workers: int, *, seals_late: bool, jitter: float = 0.0) -> AsynchronousDevice:
    """A device that has always more than a batch waiting for it."""

    async def main() -> AsynchronousDevice:
        device = AsynchronousDevice(HOST_S, jitter)
        async with over(device, workers, seals_late=seals_late) as batcher:
            await asyncio.gather(*[batcher.submit(range(500), [1] * 500) for _ in range(10)])
        return device

    return run_virtually(main())


@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_at_saturation_preparation_is_hidden_and_the_device_hardly_idles(jitter: float) -> None:
    assert saturated(2, seals_late=True, jitter=jitter).idle_share <= 0.05


def test_without_the_seam_the_device_would_idle_while_the_host_prepares() -> None:
    assert saturated(1, seals_late=True).idle_share == pytest.approx(0.2 / 1.2, abs=0.01)


def mean_wait_s(device: AsynchronousDevice, workers: int, *, seals_late: bool, load: float) -> tuple[float, float]:
    """Poisson arrivals at this part of the capacity: from arrival to dispatch, and from arrival to answer."""
    tally = Tally()

    async def main() -> float:
        rate = load * SERVICE.capacity_per_s
        async with over(device, workers, seals_late=seals_late, facts=tally) as batcher:
            log = await drive(batcher, [Phase(30_000 / rate, rate)], seed=1)
        return log.mean_time_s()

    answered_s = run_virtually(main())
    return float(np.mean(tally.waits_s)), answered_s


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_requests_wait_no_longer_than_if_batches_were_sealed_at_the_free_moment(load: float) -> None:
    """Sealed at the free moment, with a preparation that takes no time, is the least that can be had."""
    least_s, _ = mean_wait_s(AsynchronousDevice(0.0), 1, seals_late=True, load=load)
    wait_s, _ = mean_wait_s(AsynchronousDevice(HOST_S), 2, seals_late=True, load=load)
    assert wait_s <= 1.05 * least_s


def test_sealing_late_answers_sooner_than_sealing_as_soon_as_a_worker_is_free() -> None:
    _, late_s = mean_wait_s(AsynchronousDevice(HOST_S), 2, seals_late=True, load=0.8)
    _, early_s = mean_wait_s(AsynchronousDevice(HOST_S), 2, seals_late=False, load=0.8)
    assert late_s < 0.95 * early_s


def test_the_law_learns_the_devices_own_time_without_the_hosts() -> None:
    async def main() -> None:
        device, law = AsynchronousDevice(HOST_S), ServiceLaw(0.001, 0.0001)
        async with batcher_over(
            *[device.worker] * 2,
            devices=["the one"] * 2,
            host_s=lambda: HOST_S,
            law=law,
            max_batch_items=64,
            max_queue_items=10_000,
        ) as batcher:
            await drive(batcher, [Phase(2, 2500)], seed=1)
        assert law.base_s == pytest.approx(SERVICE.base_s, rel=0.05)
        assert law.slope_s == pytest.approx(SERVICE.item_s, rel=0.05)

    run_virtually(main())
