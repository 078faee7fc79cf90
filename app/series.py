"""Prometheus series for the hot path: counting is one addition, observing one append."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

FOLD_AT = 2048
"""So many observations are sorted into buckets at a time, which takes a tenth of a millisecond."""


class PlainCounter(Collector):
    """A counter kept in a dictionary by label values: prometheus_client's own takes a lock for each increment."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name = name
        self._help = help_text
        self._labels = labels
        self.counts: Counter[tuple[str, ...]] = Counter()
        registry.register(self)

    def expect(self, *values: str) -> None:
        """Show this series from the start, at zero."""
        self.counts[values] += 0

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for values, count in self.counts.items():
            family.add_metric(values, count)
        yield family


class ReadCounter(Collector):
    """A counter kept elsewhere, one value for each of several things in order; it is read when somebody asks."""

    def __init__(self, name: str, help_text: str, label: str, registry: CollectorRegistry) -> None:
        self.read: Callable[[], Sequence[float]] = tuple
        self._name = name
        self._help = help_text
        self._label = label
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._help, labels=[self._label])
        for number, value in enumerate(self.read()):
            family.add_metric([str(number)], value)
        yield family


class DeferredHistogram(Collector):
    """A histogram whose observation is one append: sorting into buckets waits until many are there, or somebody asks.

    prometheus_client's own takes a microsecond for each; a request makes several. `child` adds a series with a value
    of the one label.
    """

    def __init__(
        self, name: str, help_text: str, buckets: Sequence[float], registry: CollectorRegistry, label: str | None = None
    ) -> None:
        self._name = name
        self._help = help_text
        self._bounds = np.array(buckets)
        self._names = [floatToGoString(bound) for bound in (*buckets, math.inf)]  # type: ignore[no-untyped-call]
        self._label = label
        self._series: dict[str, _Series] = {}
        if label is None:
            self.observe = self._one("").observe
            self.observe_all = self._one("").observe_all
        registry.register(self)

    def child(self, value: str) -> Callable[[float], None]:
        """The function that observes into the series of this label value."""
        return self._one(value).observe

    def children(self, value: str) -> Callable[[Sequence[float]], None]:
        """The function that observes many values at once into the series of this label value."""
        return self._one(value).observe_all

    def _one(self, value: str) -> "_Series":
        return self._series.setdefault(value, _Series(self._bounds))

    def totals(self) -> "HistogramTotals":
        """Of a histogram without a label: the count of each bucket, and the sum of all values."""
        series = self._one("")
        return HistogramTotals(series.folded().tolist(), series.sum)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._help, labels=[self._label] if self._label else [])
        for value, series in self._series.items():
            counts = np.cumsum(series.folded())
            pairs = [(name, float(count)) for name, count in zip(self._names, counts, strict=True)]
            family.add_metric([value] if self._label else [], pairs, series.sum)
        yield family


class HistogramTotals(NamedTuple):
    """Not cumulative: so many values in each bucket, the last of which has no upper bound."""

    counts: list[int]
    sum: float


class _Series:
    def __init__(self, bounds: npt.NDArray[np.float64]) -> None:
        self._bounds = bounds
        self._counts = np.zeros(len(bounds) + 1, dtype=np.int64)
        self._new: list[float] = []
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._new.append(value)
        if len(self._new) >= FOLD_AT:
            self.folded()

    def observe_all(self, values: Sequence[float]) -> None:
        self._new += values
        if len(self._new) >= FOLD_AT:
            self.folded()

    def folded(self) -> npt.NDArray[np.int64]:
        """The count of each bucket, with all observations in."""
        values = np.array(self._new)
        self._new.clear()
        self.sum += float(values.sum())
        self._counts += np.bincount(np.searchsorted(self._bounds, values), minlength=len(self._counts))
        return self._counts
