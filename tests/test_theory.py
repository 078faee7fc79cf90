"""The batcher against queueing theory: what it takes in the mean, on a device that keeps to an exact law."""

import asyncio
import time
from array import array
from typing import Any, NamedTuple

import pytest

from app.batching import Batcher
from tests.queueing import Service, mean_time_from_batches_s, stationary_means
from tests.simulated import batcher_over, waiting
from tests.traffic import Log, Phase, drive
from tests.virtual_clock import now, run_virtually

FEW_LONG = Service(base_s=0.020, item_s=0.002, max_items=8)
MANY_SHORT = Service(base_s=0.005, item_s=0.0002, max_items=64)


class Case(NamedTuple):
    """A load on a device, the exact means for it, and how many arrivals bring a run well within 3% of them."""

    service: Service
    rate_per_s: float
    time_in_system_ms: float
    batch_items: float
    arrivals: int


CASES = [
    pytest.param(Case(MANY_SHORT, 359.55, 8.093, 2.091, 30_000), id="a tenth of the capacity"),
    pytest.param(Case(MANY_SHORT, 1078.65, 9.795, 6.878, 40_000), id="three tenths"),
    pytest.param(Case(MANY_SHORT, 2876.40, 18.044, 33.86, 80_000), id="eight tenths"),
    pytest.param(Case(FEW_LONG, 66.667, 35.268, 1.781, 30_000), id="small batches, three tenths"),
    pytest.param(Case(FEW_LONG, 177.778, 51.860, 5.525, 80_000), id="small batches, eight tenths"),
]


class Recorder:
    """A device that keeps to a law. Of each batch it notes the items, those left waiting as it began, and its time."""

    def __init__(self, service: Service) -> None:
        self.batcher: Batcher[int, Any] | None = None
        self.items = array("q")
        self.left = array("q")
        self.seconds = array("d")
        self._service = service

    async def __call__(self, payloads: list[Any]) -> list[Any]:
        assert self.batcher is not None
        began = now()
        self.items.append(len(payloads))
        self.left.append(waiting(self.batcher))
        await asyncio.sleep(self._service.seconds(len(payloads)))
        self.seconds.append(now() - began)
        return payloads

    @property
    def mean_items(self) -> float:
        return sum(self.items) / len(self.items)


def record(
    service: Service, phases: list[Phase], *, seed: int, deadline_s: float | None = None
) -> tuple[Log, Recorder]:
    """Run a batcher over such a device; returns what became of each request, and what the device saw."""
    device = Recorder(service)

    async def main() -> Log:
        options: dict[str, Any] = {"max_batch_items": service.max_items, "max_queue_items": 100_000}
        async with batcher_over(device, **options) as batcher:
            device.batcher = batcher
            return await drive(batcher, phases, seed=seed, deadline_s=deadline_s)

    return run_virtually(main()), device


class Measured(NamedTuple):
    """A case, and what a run of it gave."""

    case: Case
    log: Log
    device: Recorder


@pytest.fixture(scope="module", params=CASES)
def measured(request: pytest.FixtureRequest) -> Measured:
    """One run of each case, for all the tests that look at it."""
    case: Case = request.param
    log, device = record(case.service, [Phase(case.arrivals / case.rate_per_s, case.rate_per_s)], seed=1)
    return Measured(case, log, device)


@pytest.mark.parametrize("case", CASES)
def test_the_theory_gives_its_known_values(case: Case) -> None:
    means = stationary_means(case.rate_per_s, case.service)
    assert means.time_in_system_s * 1000 == pytest.approx(case.time_in_system_ms, rel=3e-4)
    assert means.batch_items == pytest.approx(case.batch_items, rel=3e-4)


def test_the_theory_has_no_means_at_or_above_the_capacity() -> None:
    with pytest.raises(ValueError, match="the capacity"):
        stationary_means(MANY_SHORT.capacity_per_s, MANY_SHORT)


def test_a_lone_item_takes_one_batch_of_one() -> None:
    means = stationary_means(0.001, MANY_SHORT)
    assert means.time_in_system_s == pytest.approx(0.0052, rel=1e-4)
    assert means.batch_items == pytest.approx(1, rel=1e-4)


def test_items_take_the_time_that_theory_gives_them(measured: Measured) -> None:
    assert measured.log.mean_time_s() * 1000 == pytest.approx(measured.case.time_in_system_ms, rel=0.03)


def test_batches_have_the_size_that_theory_gives_them(measured: Measured) -> None:
    assert measured.device.mean_items == pytest.approx(measured.case.batch_items, rel=0.03)


def test_the_batches_account_for_all_the_time_that_items_take(measured: Measured) -> None:
    _, log, device = measured
    rate_per_s = len(log.errors) * measured.case.rate_per_s / measured.case.arrivals
    accounted_s = mean_time_from_batches_s(rate_per_s, device.items, device.left, device.seconds)
    assert log.mean_time_s() == pytest.approx(accounted_s, rel=0.03)


def test_an_hour_of_traffic_takes_seconds() -> None:
    began_s = time.process_time()
    log, _ = record(MANY_SHORT, [Phase(3600, 20)], seed=1, deadline_s=0.050)
    assert time.process_time() - began_s < 60
    assert log.arrived_s[-1] > 3599
    assert log.mean_time_s() == pytest.approx(stationary_means(20, MANY_SHORT).time_in_system_s, rel=0.03)


def test_the_same_traffic_goes_the_same_way_twice() -> None:
    phases = [Phase(300, 20), Phase(0.5, 3 * MANY_SHORT.capacity_per_s), Phase(300, 20)]
    first, first_device = record(MANY_SHORT, phases, seed=1, deadline_s=0.050)
    second, second_device = record(MANY_SHORT, phases, seed=1, deadline_s=0.050)
    assert any(first.errors)  # the burst in the middle is too much for the device
    assert first.arrived_s == second.arrived_s
    assert first.ended_s == second.ended_s
    assert first.errors == second.errors
    assert first_device.items == second_device.items
    assert first_device.left == second_device.left
    assert first_device.seconds == second_device.seconds
