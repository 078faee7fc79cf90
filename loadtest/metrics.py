"""A service's own account: what its Prometheus metrics say of one stretch of time."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

BATCH_ITEMS = "convoy_batch_items"
WAITS = "convoy_waits_total"
BUSY = "convoy_device_busy_seconds_total"
SHARED = "convoy_shared_items_total"
ITEMS = "convoy_items_total"


class Bucket(NamedTuple):
    """How many observations were at most `most`, and above the bucket before."""

    most: float
    number: float


Key = tuple[str, tuple[tuple[str, str], ...]]


class Window:
    """What was counted between pairs of readings of `/metrics`; nothing where a server has none, or others."""

    def __init__(self, readings: Iterable[tuple[str, str, float]]) -> None:
        """For each pair: the texts in Prometheus' format, empty where there was no answer, and the seconds between."""
        self._grown: dict[Key, float] = {}
        self.seconds = 0.0
        for begin, end, seconds in readings:
            before = dict(_series(begin))
            for key, value in _series(end):
                self._grown[key] = self._grown.get(key, 0.0) + value - before.get(key, 0.0)
            self.seconds += seconds

    @classmethod
    def of(cls, marks: Iterable[Mapping[str, Any]]) -> "Window":
        """From what the load generator noted of the same step in each round."""
        return cls(
            (one["from"]["metrics"], one["to"]["metrics"], one["to"]["at_s"] - one["from"]["at_s"]) for one in marks
        )

    def total(self, name: str, **labels: str) -> float | None:
        """By how much all series of this name with these labels grew; None where there are none."""
        grown = [
            value for key, value in self._grown.items() if key[0] == name and labels.items() <= dict(key[1]).items()
        ]
        return sum(grown) if grown else None

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """By how much it grew for each value of a label."""
        values = {dict(key[1])[label] for key in self._grown if key[0] == name and label in dict(key[1])}
        return {value: self.total(name, **{label: value}) or 0.0 for value in sorted(values)}

    def buckets(self, name: str) -> list[Bucket]:
        """A histogram of what was observed; empty where there is none."""
        upto = sorted((float(bound), count) for bound, count in self.by_label(f"{name}_bucket", "le").items())
        return [
            Bucket(bound, count - (upto[i - 1][1] if i else 0.0)) for i, (bound, count) in enumerate(upto)
        ]  # fmt: skip

    def mean(self, name: str) -> float | None:
        """The mean of what was observed; None where nothing was."""
        total, count = self.total(f"{name}_sum"), self.total(f"{name}_count")
        return total / count if total is not None and count else None

    @property
    def busy_share(self) -> float | None:
        """The part of the time in which devices had a batch, in the mean over devices."""
        by_device = self.by_label(BUSY, "device")
        return sum(by_device.values()) / len(by_device) / self.seconds if by_device else None


def _series(text: str) -> Iterator[tuple[Key, float]]:
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError:
        return  # a server may serve anything under this path
    for family in families:
        for sample in family.samples:
            yield (sample.name, tuple(sorted(sample.labels.items()))), sample.value
