"""The bill of one call: its lines, which add up to the whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles

from app.doctor.lines import TITLES, Key, Kind, meaning, title


@dataclass(frozen=True, slots=True)
class Figure:
    """A median of some repetitions, and the range of the middle half of them; milliseconds."""

    ms: float
    low_ms: float
    high_ms: float

    @classmethod
    def of(cls, values: Sequence[float], unit_ms: float) -> "Figure":
        """Of at least one measurement, in units of so many milliseconds."""
        low, middle, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
        return cls(unit_ms * middle, unit_ms * low, unit_ms * high)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a bill; `share` is its part of the whole. What is not attributed has no spread: it is what is left of
    medians."""

    key: Key
    title: str
    ms: float
    low_ms: float | None
    high_ms: float | None
    share: float
    meaning: str


@dataclass(frozen=True, slots=True)
class Counts:
    """What there was in one call: how many operators Python called; by name, what made the host wait or would on a
    card, and copies over the bus; the part of the operators' computing that was matrix products, None where that
    cannot be told; and how many kernels the profiler saw on a card."""

    operators: int
    hidden_synchronisations: Mapping[str, int]
    bus_copies: Mapping[str, int]
    products: float | None = None
    kernels: int = 0


NOTHING = Counts(0, {}, {})


@dataclass(frozen=True, slots=True)
class Bill:
    """One call, from so many texts to their rows, in the median of some repetitions. Under the profiler it took
    `profiler_slower` times as long, without what the profiler is known to take itself."""

    texts: int
    tokens: int
    batches: int
    repetitions: int
    texts_per_s: float
    whole: Figure
    lines: Sequence[Line]
    counts: Counts
    profiler_slower: float

    def share(self, *keys: Key) -> float:
        """The part of the whole that these lines have together."""
        return sum(line.share for line in self.lines if line.key in keys)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A size that was not measured, and why."""

    texts: int
    reason: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of calls of one size: the seconds of each, and the parts that each line had of some of them."""

    texts: int
    tokens: int
    batches: int
    whole_s: Sequence[float]
    parts: Mapping[Key, Sequence[float]]
    counts: Counts
    profiler_slower: float = 1.0


def bill_of(measured: Measured, kind: Kind, operator_us: float) -> Bill:
    """The bill, with a last line for what the others leave of the whole."""
    whole = Figure.of(measured.whole_s, 1000)

    def line(key: Key, ms: float, low_ms: float | None, high_ms: float | None) -> Line:
        words = meaning(key, kind, operators=measured.counts.operators, operator_us=operator_us)
        return Line(key, title(key, kind), ms, low_ms, high_ms, ms / whole.ms, words)

    figures = {key: Figure.of(measured.parts.get(key) or [0.0], whole.ms) for key in TITLES if key != "not_attributed"}
    lines = [line(key, one.ms, one.low_ms, one.high_ms) for key, one in figures.items()]
    lines.append(line("not_attributed", whole.ms - sum(one.ms for one in lines), None, None))
    return Bill(
        texts=measured.texts,
        tokens=measured.tokens,
        batches=measured.batches,
        repetitions=len(measured.whole_s),
        texts_per_s=measured.texts / whole.ms * 1000,
        whole=whole,
        lines=lines,
        counts=measured.counts,
        profiler_slower=measured.profiler_slower,
    )
