"""What a law of service predicts: latencies of a queue whose device takes whatever waits, whenever it is free.

With Poisson arrivals the number of items there at the start of each batch is a Markov chain, n → max(1, n − m +
Poisson(λ·t(m))), where m of them travel. The mean follows from its stationary law; percentiles of single items need the
arrivals within batches too, so the chain is played through with them.
"""

import heapq
from bisect import bisect_right
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]
ARRIVALS = 60_000
SETTLING = 0.1
"""This part at the beginning is left out: the queue begins empty."""


class Service(NamedTuple):
    """A batch takes `base_s + item_s·items + token_s·tokens`, and holds at most so many of either; one of `devices`
    that is free takes it. Single batches take longer or shorter, log-normally with mean 1: `scatter` is the standard
    deviation of the logarithm."""

    base_s: float
    item_s: float = 0.0
    token_s: float = 0.0
    max_items: int = 512
    max_tokens: float = float("inf")
    devices: int = 1
    scatter: float = 0.0

    def seconds(self, items: int, tokens: float) -> float:
        """How long one batch takes."""
        return self.base_s + self.item_s * items + self.token_s * tokens

    def scaled(self, factor: float) -> "Service":
        """A device that takes so many times as long."""
        return self._replace(
            base_s=self.base_s * factor, item_s=self.item_s * factor, token_s=self.token_s * factor
        )  # fmt: skip


class Run(NamedTuple):
    """Of each item, how long it waited and how long it took in all, in seconds; and the items of each batch."""

    waits_s: Seconds
    latencies_s: Seconds
    batch_items: NDArray[np.int64]


def play(rate_per_s: float, service: Service, lengths: NDArray[np.float64], *, seed: int = 1) -> Run:
    """Items that arrive at random at this rate, with lengths in tokens drawn from these."""
    rng = np.random.default_rng(seed)
    arrived = np.cumsum(rng.exponential(size=ARRIVALS)) / rate_per_s
    tokens = rng.choice(lengths, size=ARRIVALS)
    factors = rng.lognormal(-(service.scatter**2) / 2, service.scatter, size=ARRIVALS)
    if service.max_items == 1 and service.devices == 1:
        return _one_by_one(arrived, factors * (service.base_s + service.item_s + service.token_s * tokens))
    arrivals, until = arrived.tolist(), np.concatenate([[0.0], np.cumsum(tokens)]).tolist()
    batches: list[tuple[int, float, float]] = []  # items, start, end
    free = [0.0] * service.devices
    first = 0
    while first < ARRIVALS:
        start = max(heapq.heappop(free), arrivals[first])
        last = min(bisect_right(arrivals, start, first), first + service.max_items)
        if until[last] - until[first] > service.max_tokens:
            last = max(first + 1, bisect_right(until, until[first] + service.max_tokens, first, last) - 1)
        end = start + factors[len(batches)] * service.seconds(last - first, until[last] - until[first])
        batches.append((last - first, start, end))
        heapq.heappush(free, end)
        first = last
    items, starts, ends = (np.array(column) for column in zip(*batches, strict=True))
    return _run(arrived, np.repeat(starts, items), np.repeat(ends, items), items)


def _one_by_one(arrived: Seconds, seconds: Seconds) -> Run:
    """The same without batches: who comes is served when all before are, which is a running maximum."""
    done = np.cumsum(seconds)
    ends = done + np.maximum.accumulate(arrived - (done - seconds))
    return _run(arrived, ends - seconds, ends, np.ones(len(arrived), dtype=np.int64))


def _run(arrived: Seconds, starts: Seconds, ends: Seconds, items: NDArray[np.int64]) -> Run:
    counted = slice(int(SETTLING * len(arrived)), None)
    return Run((starts - arrived)[counted], (ends - arrived)[counted], items)


def capacity_per_s(service: Service, lengths: NDArray[np.float64]) -> float:
    """Items a second in full batches of mean length, on all devices."""
    mean = float(np.mean(lengths))
    items = max(1, int(min(service.max_items, service.max_tokens / mean)))
    return service.devices * items / max(1e-9, service.seconds(items, items * mean))


def max_rate_per_s(
    service: Service, lengths: NDArray[np.float64], objective_s: float, *, other_s: float = 0.0, share: float = 0.99
) -> float:
    """The highest rate at which this share of the items is answered within the objective, by bisection to 0.4%; 0.0
    where a lone item is too slow. `other_s` is spent outside queue and device."""

    def is_met(rate: float) -> bool:
        return float(np.quantile(play(rate, service, lengths).latencies_s, share)) + other_s <= objective_s

    low, high = 0.0, capacity_per_s(service, lengths)
    if not is_met(high * 1e-4):
        return 0.0
    while high - low > 0.004 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_met(middle) else (low, middle)
    return (low + high) / 2
