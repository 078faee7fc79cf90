"""What the batcher still answers in time when more comes than its device can do."""

from typing import Any

import numpy as np
import pytest

from app.errors import DeadlineExceeded, NotAccepted
from tests.queueing import Service
from tests.simulated import Device, batcher_over
from tests.traffic import Log, Phase, drive
from tests.virtual_clock import run_virtually

SERVICE = Service(base_s=0.005, item_s=0.0002, max_items=64)
CAPACITY_PER_S = 3595.5
"""Full batches one after another: 64 items every 17.8 ms."""
OBJECTIVE_S = 0.050
WARM_UP_S = 0.5
"""The batcher may learn its device's law in this time."""
LATE_S = 0.010
"""The news that a deadline has passed may come so late: many deadlines share a timer."""


def overload(phases: list[Phase], *, seed: int) -> Log:
    """Run a batcher under this traffic, each request due `OBJECTIVE_S` after it came; no bound on the queue helps."""

    async def main() -> Log:
        device = Device(SERVICE.base_s, SERVICE.item_s)
        options: dict[str, Any] = {"max_batch_items": SERVICE.max_items, "max_queue_items": 100_000}
        async with batcher_over(device, **options) as batcher:
            return await drive(batcher, phases, seed=seed, deadline_s=OBJECTIVE_S)

    return run_virtually(main())


def least_share(log: Log, phases: list[Phase], window_s: float, every_s: float = 0.01) -> float:
    """The least that was answered in time in any window, as a share of what came or could be done, whichever is less.

    What is answered counts when it is answered. What came is counted, not computed from the rate, so that it does not
    matter that chance sends a few more or less; what could be done is the capacity for as long as the rate is above it.
    """
    answered = np.sort(log.answered_s(within_s=OBJECTIVE_S))
    arrived = np.array(log.arrived_s)
    end = sum(phase.seconds for phase in phases)
    begins = np.arange(0, end - window_s + every_s / 2, every_s)
    due = np.zeros(len(begins))
    phase_begin = 0.0
    for phase in phases:
        low = np.maximum(begins, phase_begin)
        high = np.maximum(np.minimum(begins + window_s, phase_begin + phase.seconds), low)
        came = np.searchsorted(arrived, high) - np.searchsorted(arrived, low)
        due += came if phase.rate_per_s < CAPACITY_PER_S else CAPACITY_PER_S * (high - low)
        phase_begin += phase.seconds
    done = np.searchsorted(answered, begins + window_s) - np.searchsorted(answered, begins)
    return float(np.min(done / due))


@pytest.mark.parametrize(("load", "least"), [(1.1, 0.97), (1.5, 0.97), (5.0, 0.95)])
def test_overload_leaves_nearly_the_whole_capacity_to_answers_in_time(load: float, least: float) -> None:
    measured_s = 2.0
    log = overload([Phase(WARM_UP_S + measured_s, load * CAPACITY_PER_S)], seed=1)
    answered = log.answered_s(within_s=OBJECTIVE_S)
    goodput_per_s = np.sum((answered >= WARM_UP_S) & (answered < WARM_UP_S + measured_s)) / measured_s
    assert goodput_per_s >= least * CAPACITY_PER_S


def test_a_step_into_overload_and_back_leaves_no_half_second_without_its_answers() -> None:
    phases = [Phase(2, load * CAPACITY_PER_S) for load in (0.5, 3, 0.5)]
    log = overload(phases, seed=1)
    assert least_share(log, phases, window_s=0.5) >= 0.9


def test_a_request_that_overload_leaves_unanswered_is_told_so_by_its_deadline() -> None:
    log = overload([Phase(1, 3 * CAPACITY_PER_S)], seed=1)
    assert any(log.errors)
    for arrived_s, ended_s, error in zip(log.arrived_s, log.ended_s, log.errors, strict=True):
        if error is not None:
            assert issubclass(error, NotAccepted | DeadlineExceeded)
            assert ended_s <= arrived_s + OBJECTIVE_S + LATE_S


def test_the_capacity_is_that_of_full_batches_one_after_another() -> None:
    assert SERVICE.capacity_per_s == pytest.approx(CAPACITY_PER_S, rel=1e-4)
