"""The law of service as a load test saw it: how long batches took by their tokens, and by how much they scatter."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadtest.forecast import Law
from loadtest.samples import Table
from loadtest.theory import Service

LEAST_BATCHES = 100
KNEE_TOKENS = 200.0
"""Times are compared as shares of what a batch of so many tokens more would take, so that small batches count too."""

CLEAR = 4.0
"""So many standard errors from 0 a slope must be, to be believed."""

TENTH = 1.2816
"""So many standard deviations from the mean a tenth of a normal distribution begins."""

Numbers = NDArray[np.float64]


class Batches(NamedTuple):
    """Of each answer's batch its tokens, its seconds, and the answer's weight: a batch that carried n is seen n
    times."""

    tokens: Numbers
    seconds: Numbers
    weight: Numbers


def fitted(law: Law, levels: Sequence[Table], side_by_side: int) -> Law:
    """The law with base, slope and scatter of the batches in these samples, one table for each level of load and
    round; as it was where they are too few, and with the shape that it had where they are too much alike to show
    another. Its error is how far the mean of one of them lies from the law.

    A batch takes as long as its requests say that the forward took. Where a device runs that many `side_by_side`, it is
    the time beside others, and each place counts as a device.
    """
    each = [batches for level in levels if len((batches := _batches(level)).tokens)]
    if sum(float(np.sum(one.weight)) for one in each) < LEAST_BATCHES:
        return law
    together = Batches(*(np.concatenate(column) for column in zip(*each, strict=True)))
    base_s, token_s = _line(together) or _scaled(law.service, together)

    def foretold_s(of: Batches) -> Numbers:
        return base_s + token_s * of.tokens

    logs = np.log(together.seconds / foretold_s(together))
    means = [_mean(one.seconds, one.weight) / _mean(foretold_s(one), one.weight) for one in each]
    service = law.service._replace(
        base_s=base_s, item_s=0.0, token_s=token_s, scatter=_deviation(logs, together.weight),
        devices=law.service.devices * side_by_side,
    )  # fmt: skip
    return replace(law, service=service, error=max(abs(mean - 1) for mean in means))


def _batches(samples: Table) -> Batches:
    seen = samples.where(
        (samples["outcome"] == "answered") & (samples["counted"] > 0) & (samples["forward_ms"] > 0)
        & (samples["batch_items"] > 0) & (samples["batch_tokens"] > 0)
    )  # fmt: skip
    return Batches(seen["batch_tokens"], seen["forward_ms"] / 1e3, 1 / seen["batch_items"])


def _line(batches: Batches) -> tuple[float, float] | None:
    """Base and slope of the closest line, neither of them negative; None where the slope is lost in the noise."""
    x, y, weight = batches.tokens, batches.seconds, batches.weight / (batches.tokens + KNEE_TOKENS) ** 2
    mean_x, mean_y = _mean(x, weight), _mean(y, weight)
    variance = _mean((x - mean_x) ** 2, weight)
    if not variance:
        return None
    slope = _mean((x - mean_x) * (y - mean_y), weight) / variance
    left = _mean((y - mean_y - slope * (x - mean_x)) ** 2, weight)
    if slope < CLEAR * math.sqrt(left / variance / float(np.sum(batches.weight))):
        return None
    slope = min(slope, mean_y / mean_x)
    return mean_y - slope * mean_x, slope


def _scaled(service: Service, batches: Batches) -> tuple[float, float]:
    """Base and slope of a known shape, as many times as long as these batches took."""
    known_s = service.base_s + service.token_s * batches.tokens
    factor = _mean(batches.seconds, batches.weight) / _mean(known_s, batches.weight)
    return factor * service.base_s, factor * service.token_s


def _deviation(values: Numbers, weight: Numbers) -> float:
    """The standard deviation, by what lies between the tenths at both ends: a single pause of the machine is no part of
    a law."""
    order = np.argsort(values)
    upto = np.cumsum(weight[order])
    low, high = values[order][np.searchsorted(upto, [0.1 * upto[-1], 0.9 * upto[-1]])]
    return float(high - low) / (2 * TENTH)


def _mean(values: Numbers, weight: Numbers) -> float:
    return float(np.sum(values * weight) / np.sum(weight))
