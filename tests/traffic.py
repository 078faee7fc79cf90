"""Open-loop traffic for a batcher: requests that come by a Poisson process, whatever became of those before them."""

import asyncio
from array import array
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.batching import Batcher
from app.errors import ConvoyError
from tests.virtual_clock import now


class Phase(NamedTuple):
    """So many seconds with so many arrivals a second."""

    seconds: float
    rate_per_s: float


class Log:
    """What became of each request, in the order of arrival: two dozen bytes a request, for runs of hours."""

    def __init__(self) -> None:
        self.arrived_s = array("d")
        self.ended_s = array("d")
        """When it was answered, refused or expired; NaN while it is under way."""
        self.errors: list[type[ConvoyError] | None] = []
        """None where it was answered."""

    def arrive(self, at_s: float) -> int:
        """A request is here; returns its number."""
        self.arrived_s.append(at_s)
        self.ended_s.append(float("nan"))
        self.errors.append(None)
        return len(self.errors) - 1

    def end(self, number: int, at_s: float, error: type[ConvoyError] | None) -> None:
        """It has been answered, or has ended with an error of this class."""
        self.ended_s[number] = at_s
        self.errors[number] = error

    def answered_s(self, within_s: float = float("inf")) -> NDArray[np.float64]:
        """When each of those was answered that were answered within so many seconds, in no particular order."""
        answered = np.array([error is None for error in self.errors], dtype=bool)
        in_time = np.array(self.ended_s) - np.array(self.arrived_s) <= within_s + 1e-9
        times: NDArray[np.float64] = np.array(self.ended_s)[answered & in_time]
        return times

    def mean_time_s(self) -> float:
        """From arrival to answer, over all requests; all must have been answered."""
        assert not any(self.errors)
        return float(np.mean(np.array(self.ended_s) - np.array(self.arrived_s)))


def arrivals_s(phases: Sequence[Phase], seed: int) -> Iterator[float]:
    """The times of a Poisson process whose rate changes from phase to phase, from 0 on; one seed, one sequence."""
    random = Random(seed)
    begin = 0.0
    for seconds, rate_per_s in phases:
        end = begin + seconds
        at = begin + random.expovariate(rate_per_s)
        while at < end:
            yield at
            at += random.expovariate(rate_per_s)
        begin = end  # the process has no memory: the gap across the border is drawn anew


async def drive(
    batcher: Batcher[int, Any], phases: Sequence[Phase], *, seed: int, deadline_s: float | None = None
) -> Log:
    """Submit one item of size 1 for each arrival, due `deadline_s` after it; returns when all requests have ended."""
    log = Log()
    begin = now()
    async with asyncio.TaskGroup() as requests:
        for at in arrivals_s(phases, seed):
            await asyncio.sleep(begin + at - now())
            requests.create_task(_request(batcher, log, deadline_s))
    return log


async def _request(batcher: Batcher[int, Any], log: Log, deadline_s: float | None) -> None:
    arrived = now()
    number = log.arrive(arrived)
    error: type[ConvoyError] | None = None
    try:
        await batcher.submit([number], [1], deadline=None if deadline_s is None else arrived + deadline_s)
    except ConvoyError as refusal:
        error = type(refusal)
    log.end(number, now(), error)
