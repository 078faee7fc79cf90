"""The theory of a batch queue: what a batcher that dispatches when the device is free must take, in the mean.

Items arrive one at a time, by a Poisson process. One device serves up to `max_items` of them together, in
`base_s + item_s·items` seconds; whenever it is free it takes what waits, and when nothing waits, the next that comes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TAIL = 1e-12
"""Longer queues than the chain holds may have at most this probability."""
MAX_STATES = 4096


class Service(NamedTuple):
    """A device's law: a batch of n items takes `base_s + item_s·n` seconds, and holds at most `max_items`."""

    base_s: float
    item_s: float
    max_items: int

    def seconds(self, items: int) -> float:
        """How long one batch takes."""
        return self.base_s + self.item_s * items

    @property
    def capacity_per_s(self) -> float:
        """Items a second in full batches, one after another."""
        return self.max_items / self.seconds(self.max_items)


class Means(NamedTuple):
    """What the theory says about the long run.

    `time_in_system_s` is the time from an item's arrival until its row is there, waiting and service together;
    `batch_items` is the number of items in a batch, each batch counted once.
    """

    time_in_system_s: float
    batch_items: float


def stationary_means(rate_per_s: float, service: Service) -> Means:
    """The exact means for `rate_per_s` arrivals a second, which must be below the device's capacity.

    The number n of items there when a batch begins is a Markov chain: m = min(n, max_items) of them travel, for
    τ = t(m) seconds, and the next batch begins with max(1, n - m + Poisson(rate·τ)). With π its stationary law, an
    item's mean time in the system is Σπ·(n·τ + rate·τ²/2) / Σπ·m, which is Little's law: the item-seconds between the
    beginnings of two batches, over the items served. The n are there for all of τ, those that arrive meanwhile for half
    of it in the mean, and while the device is idle nobody is there. Inoue, "Queueing analysis of GPU-based inference
    servers with dynamic batching" (2021, arXiv:1912.06322), derives the same from the law of batch sizes, with no cap.
    """
    if not 0 < rate_per_s < service.capacity_per_s:
        raise ValueError(f"{rate_per_s}/s is not between 0 and the capacity, {service.capacity_per_s:.1f}/s.")
    states = 4 * service.max_items
    law = _stationary_law(rate_per_s, service, states)
    while law[-1] > TAIL:
        states *= 2
        if states > MAX_STATES:
            raise ValueError(f"At {rate_per_s}/s queues of {states // 2} items are too common for this method.")
        law = _stationary_law(rate_per_s, service, states)
    n = np.arange(1, states + 1)
    items = np.minimum(n, service.max_items)
    seconds = service.base_s + service.item_s * items
    batch_items = law @ items
    return Means(float(law @ (n * seconds + rate_per_s * seconds**2 / 2) / batch_items), float(batch_items))


def mean_time_from_batches_s(
    rate_per_s: float, items: Sequence[int], left: Sequence[int], seconds: Sequence[float]
) -> float:
    """The mean time in the system that a run's own batches account for, in seconds.

    For each batch: how many `items` it took, how many it `left` waiting, and how long it took. This is the formula of
    `stationary_means` with the run's own averages in place of π, (Σn·τ + Σq·τ + rate/2·Στ²) / Σn; it holds whatever the
    batches were, as long as no item waited while the device was free. A measured mean above it is hidden waiting.
    """
    n, q, tau = (np.asarray(values, dtype=float) for values in (items, left, seconds))
    return float((n @ tau + q @ tau + rate_per_s / 2 * (tau @ tau)) / n.sum())


def _stationary_law(rate_per_s: float, service: Service, states: int) -> NDArray[np.float64]:
    """π over queue lengths 1 to `states`; the last stands for all longer ones as well."""
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, states)))])
    counts = np.arange(states)
    arrivals = [np.zeros(0)]  # by the items of a batch: the law of how many arrive while it runs
    for items in range(1, service.max_items + 1):
        mean = rate_per_s * service.seconds(items)
        arrivals.append(np.exp(counts * np.log(mean) - mean - log_factorials))
    steps = np.zeros((states, states))
    for n in range(1, states + 1):
        items = min(n, service.max_items)
        after = np.concatenate([np.zeros(n - items), arrivals[items][: states - (n - items)]])  # of 0 to states - 1
        steps[n - 1, :-1] = after[1:]
        steps[n - 1, 0] += after[0]
        steps[n - 1, -1] = 1 - steps[n - 1, :-1].sum()
    equations = steps.T - np.eye(states)
    equations[-1] = 1  # one balance equation follows from the others; that all adds up to 1 does not
    right = np.zeros(states)
    right[-1] = 1
    return np.linalg.solve(equations, right).astype(np.float64)
