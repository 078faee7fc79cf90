"""When requests are due: Poisson arrivals whose rate may change with time, and the shapes it can take."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Stretch(NamedTuple):
    """So many seconds in which the level goes in a straight line from one value to another."""

    seconds: float
    begin: float
    end: float

    @property
    def area(self) -> float:
        """The level's integral: arrivals to expect, where it is a rate."""
        return self.seconds * (self.begin + self.end) / 2

    def time_of(self, area: NDArray[np.float64]) -> NDArray[np.float64]:
        """After how many seconds the integral reaches each of these values."""
        slope = (self.end - self.begin) / self.seconds
        root = np.sqrt(np.maximum(0.0, self.begin**2 + 2 * slope * area))
        return 2 * area / (self.begin + root)  # the root of a square equation, in the form that bears a slope of 0


Course = tuple[Stretch, ...]
"""A level over time: requests a second, or users."""


def length_s(course: Course) -> float:
    """How long it lasts."""
    return sum(stretch.seconds for stretch in course)


def level_at(course: Course, at_s: float) -> float:
    """The level at this time; the last one's after the end."""
    for stretch in course:
        if at_s < stretch.seconds:
            return stretch.begin + (stretch.end - stretch.begin) * at_s / stretch.seconds
        at_s -= stretch.seconds
    return course[-1].end


def arrivals_s(course: Course, seed: int) -> list[float]:
    """The times of a Poisson process with this course of rates, from 0 on; one seed, one sequence.

    A process of rate 1 is drawn and its time is stretched: the next arrival comes when the integral of the rate has
    grown by an exponential draw.
    """
    total = sum(stretch.area for stretch in course)
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(size=int(total + 10 * np.sqrt(total) + 50))
    areas = np.cumsum(gaps)
    times: list[float] = []
    begin_s = passed = 0.0
    for stretch in course:
        inside = areas[(areas >= passed) & (areas < passed + stretch.area)] - passed
        times.extend((begin_s + stretch.time_of(inside)).tolist())
        begin_s += stretch.seconds
        passed += stretch.area
    return times


def steady(peak: float, seconds: float) -> Course:
    """The same all the time."""
    return (Stretch(seconds, peak, peak),)


def ramp(peak: float, seconds: float) -> Course:
    """From nothing to the peak: where does it begin to hurt?"""
    return (Stretch(seconds, 0.0, peak),)


def step(peak: float, seconds: float) -> Course:
    """Five levels, each a fifth of the peak higher."""
    return tuple(Stretch(seconds / 5, peak * part / 5, peak * part / 5) for part in range(1, 6))


def spike(peak: float, seconds: float) -> Course:
    """A fifth of the peak, a burst at the peak for a fifth of the time, and back: how long does it take to recover?"""
    low = peak / 5
    return (Stretch(seconds * 0.4, low, low), Stretch(seconds * 0.2, peak, peak), Stretch(seconds * 0.4, low, low))


def soak(peak: float, seconds: float) -> Course:
    """Seven tenths of the peak for a long time, after a slow start: does anything leak or drift?"""
    high = 0.7 * peak
    return (Stretch(seconds * 0.05, 0.1 * high, high), Stretch(seconds * 0.95, high, high))


Shape = Callable[[float, float], Course]
SHAPES: dict[str, Shape] = {"steady": steady, "ramp": ramp, "step": step, "spike": spike, "soak": soak}


def peak_of(course: Sequence[Stretch]) -> float:
    """The highest level."""
    return max(max(stretch.begin, stretch.end) for stretch in course)
