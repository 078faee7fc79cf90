"""The sweep: which loads are sent to which service, in which order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.analysis import max_rate
from loadtest.measures import Measure, measure
from loadtest.service import Target
from loadtest.steps import Step, closed_step, open_step, warmup_step
from loadtest.visit import Visit, visit

NEAR = (0.85, 0.95, 1.05, 1.15)
"""Around the highest rate that the first round found: there the curve is looked at more closely."""
WARM_UP = warmup_step(users=32, seconds=6)
FARTHER = 1.3
"""The next higher rate over the one before."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: a whole sweep takes some twenty minutes on two cores, a quick one less than three."""

    seconds: float
    """Of each step, besides its warm-up."""
    warmup_s: float
    rounds: int
    users: tuple[int, ...]
    """Levels of the closed loop."""
    closed_s: float
    closed_in_every_round: bool
    parts: tuple[float, ...]
    """Levels of the open loop, as parts of the best throughput of the closed one."""
    look_closer: bool
    """Whether later rounds try more rates around the highest one that holds."""
    farther: int
    """So many higher rates are tried where even the highest holds, or lower ones where none does."""


FULL = Effort(
    seconds=15, warmup_s=3, rounds=3, users=(1, 8, 32, 128), closed_s=8, closed_in_every_round=True,
    parts=(0.2, 0.4, 0.6, 0.75, 0.9, 1.05, 1.25), look_closer=True, farther=5,
)  # fmt: skip
QUICK = Effort(
    seconds=3, warmup_s=0.5, rounds=2, users=(1, 8, 32, 128), closed_s=1.5, closed_in_every_round=False,
    parts=(0.3, 0.55, 0.8, 1.1), look_closer=False, farther=2,
)  # fmt: skip


@dataclass
class Sweep:
    """Plays a closed loop against each service, an open one with rates that follow from it, and repeats that in turns,
    there and back (off on, on off, …), so that drift falls on all alike."""

    targets: Sequence[Target]
    effort: Effort
    objective_ms: float
    options: Sequence[str]
    """For locust."""
    folder: Path
    rates: Mapping[str, Sequence[float]]
    """By service, where they are not to be found."""
    tell: Callable[[str], None]
    visits: dict[str, list[Visit]] = field(default_factory=dict)

    def run(self) -> dict[str, list[Visit]]:
        """All visits, by service. Raises LoadTestFailed."""
        grids: dict[str, list[float]] = {}
        for target in self.targets:
            closed = self._visit(target, 1, [WARM_UP, *self._closed_steps()]) if self.effort.users else None
            grids[target.name] = self._grid(target, closed)
        for number in range(1, self.effort.rounds + 1):
            for target in self.targets if number % 2 else reversed(self.targets):
                rates = grids[target.name]
                closed_too = self.effort.closed_in_every_round and number > 1
                self._visit(target, number, self._open_steps(rates) + (self._closed_steps() if closed_too else []))
                if number == 1 and target.name not in self.rates:
                    grids[target.name] = self._better_grid(target, rates)
        return self.visits

    def _grid(self, target: Target, closed: Visit | None) -> list[float]:
        """The rates to begin with."""
        given = self.rates.get(target.name)
        if given is not None or closed is None:
            return sorted(given or [])
        throughput = max(self._measure(closed, step).rate for step in closed.steps if step.seconds > 0)
        return sorted({_rounded(part * throughput) for part in self.effort.parts})

    def _better_grid(self, target: Target, rates: Sequence[float]) -> list[float]:
        """The rates for the rounds to come: beyond the knee and close to it, as the first round shows it."""
        grid = list(rates)
        for _ in range(self.effort.farther):
            found = max_rate(self._open(target), self.objective_ms)
            if found is None or found.bound == "measured":
                break
            if found.bound == "at_least" and self._open(target)[-1].client_limited:
                break
            grid = sorted([*grid, _rounded(grid[-1] * FARTHER if found.bound == "at_least" else grid[0] / 2)])
            new = grid[-1] if found.bound == "at_least" else grid[0]
            self._visit(target, 1, self._open_steps([new]))
        found = max_rate(self._open(target), self.objective_ms)
        if self.effort.look_closer and found is not None and found.bound == "measured":
            grid += [_rounded(part * found.per_s) for part in NEAR]
        return sorted(set(grid))

    def _open(self, target: Target) -> list[Measure]:
        """The open loop's measures so far, the lowest rate first."""
        found = [
            self._measure(one, step) for one in self.visits[target.name] for step in one.steps if step.loop == "open"
        ]
        return sorted(found, key=lambda one: one.level)

    def _measure(self, one: Visit, step: Step) -> Measure:
        return measure(one.of(step.name), step, self.objective_ms, unsent=int(one.marks[step.name]["unsent"]))

    def _open_steps(self, rates: Sequence[float]) -> list[Step]:
        return [open_step(rate, self.effort.seconds, self.effort.warmup_s) for rate in rates]

    def _closed_steps(self) -> list[Step]:
        return [closed_step(users, self.effort.closed_s, self.effort.warmup_s) for users in self.effort.users]

    def _visit(self, target: Target, number: int, steps: list[Step]) -> Visit:
        mine = self.visits.setdefault(target.name, [])
        stem = self.folder / str(sum(map(len, self.visits.values())))
        head = f"round {number}/{self.effort.rounds}  {target.name:<10}"
        mine.append(visit(target, steps, number, self.options, stem, lambda line: self.tell(f"{head} {line}")))
        return mine[-1]


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")
