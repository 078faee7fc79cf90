"""What rounds come to: medians with their range, and ratios within a round."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some rounds, and their range; not numbers where no round has a value."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        known = [value for value in values if not math.isnan(value)]
        if not known:
            return cls(math.nan, math.nan, math.nan)
        return cls(statistics.median(known), min(known), max(known))

    def text(self, digits: int) -> str:
        """`12 (11 to 14)`, or the number alone where it is the same in all rounds; a dash where there is none."""
        if math.isnan(self.median):
            return "–"
        median, low, high = (f"{value:,.{digits}f}" for value in (self.median, self.low, self.high))
        return median if low == high else f"{median} ({low} to {high})"


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of every contestant, a value for each round."""

    title: str
    values: Mapping[str, Sequence[float]]
    better: Literal["more", "less"] | None = None
    """Which of two values is the better one; None for what is neither."""
    digits: int = 0
    what: str = ""
    """The title as a sentence has it, where the table gives it a context."""

    def spread(self, name: str) -> Spread:
        return Spread.of(self.values.get(name, ()))

    def advantage(self, of: str, over: str) -> Spread:
        """How many times better `of` did than `over`, round by round: above 1 where it was better."""
        pairs = zip(self.values.get(of, ()), self.values.get(over, ()), strict=False)
        return Spread.of(_times(a, b) if self.better == "more" else _times(b, a) for a, b in pairs)


def _times(over: float, under: float) -> float:
    return over / under if under > 0 else math.nan


def best(values: Mapping[str, Sequence[float]], names: Iterable[str]) -> str:
    """Whoever of them has the greatest median."""
    return max(names, key=lambda name: _rank(Spread.of(values.get(name, ())).median))


def _rank(value: float) -> float:
    return -math.inf if math.isnan(value) else value
