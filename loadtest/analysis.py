"""What the measures say together: the highest rate within an objective, and how two services compare."""

import math
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from loadtest.measures import Measure

FOREVER_MS = 60_000.0
"""Who got no answer has waited for so long, where a curve is drawn through it."""


Bound = Literal["measured", "at_least", "at_most"]


class MaxRate(NamedTuple):
    """The highest rate of requests at which 99% of them are answered within the objective.

    `at_least`: no higher rate was tried that failed. `at_most`: no lower rate was tried that held.
    """

    per_s: float
    bound: Bound

    def __str__(self) -> str:
        sign = {"measured": "", "at_least": "at least ", "at_most": "less than "}[self.bound]
        return f"{sign}{readable(self.per_s)}/s"


def max_rate(measures: Sequence[Measure], objective_ms: float) -> MaxRate | None:
    """From the open-loop measures of one service that its client did not limit; None where there are none.

    Percentiles at rates close to each other are noisy, and a queue's can only grow with the rate: the curve is the
    closest one that never falls (isotonic regression of the logarithm), and the rate is read off where it crosses the
    objective, on straight lines between the rates that were tried.
    """
    points = sorted(
        (one for one in measures if one.loop == "open" and not one.client_limited), key=lambda one: one.rate
    )
    if not points:
        return None
    rates = [point.rate for point in points]
    logs = [math.log(min(FOREVER_MS, max(1e-3, point.within_ms[99]))) for point in points]
    curve = isotonic_regression(logs, weights=[point.requests for point in points]).x
    limit = math.log(objective_ms)
    if curve[0] > limit:
        return MaxRate(rates[0], "at_most")
    if curve[-1] <= limit:
        return MaxRate(rates[-1], "at_least")
    above = int(np.argmax(curve > limit))
    part = (limit - curve[above - 1]) / (curve[above] - curve[above - 1])
    return MaxRate(float(rates[above - 1] + part * (rates[above] - rates[above - 1])), "measured")


CLAIMS: dict[tuple[Bound, Bound], str] = {
    ("measured", "measured"): "",
    ("at_least", "measured"): "at least ",
    ("measured", "at_least"): "at most ",
    ("measured", "at_most"): "more than ",
    ("at_least", "at_most"): "more than ",
    ("at_most", "measured"): "less than ",
    ("at_most", "at_least"): "less than ",
}
"""What a ratio's value is, by the bounds of the rates above and below its line; of others it says nothing."""


class Ratio(NamedTuple):
    """How many times as much, with the least and the most that single rounds said."""

    value: float
    least: float
    most: float
    claim: str = ""
    """Words before the value, where it is a bound: `at least `."""

    def __str__(self) -> str:
        return f"{self.claim}×{readable(self.value)} ({readable(self.least)} to {readable(self.most)})"


def ratio(over: MaxRate, under: MaxRate, rounds: Sequence[tuple[MaxRate | None, MaxRate | None]]) -> Ratio | None:
    """Of two services' highest rates, and of those of each round; None where both rates are bounds on the same side, so
    that nothing follows for their ratio."""
    claim = CLAIMS.get((over.bound, under.bound))
    if claim is None:
        return None
    value = over.per_s / under.per_s
    each = [a.per_s / b.per_s for a, b in rounds if a is not None and b is not None]
    return Ratio(value, min([value, *each]), max([value, *each]), claim)


def noise(rounds: Sequence[MaxRate | None]) -> Ratio | None:
    """One service against itself: each round's highest rate over the mean of all; None where there is but one."""
    rates = [one.per_s for one in rounds if one is not None]
    if len(rates) < 2:
        return None
    mean = statistics.fmean(rates)
    return Ratio(1.0, min(rates) / mean, max(rates) / mean)


def readable(value: float) -> str:
    """A number with three digits, or all of those before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
