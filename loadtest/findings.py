"""What a test found of one service: its measures by level and by round, its highest rate, and what was forecast."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loadtest.analysis import MaxRate, max_rate
from loadtest.fit import fitted
from loadtest.forecast import TYPICAL_TOKENS, Forecast, Law, devices_in, forecast, law_of, lengths_in, other_ms_in
from loadtest.measures import PERCENTILES, Measure, measure
from loadtest.metrics import Window
from loadtest.samples import Table, concatenated
from loadtest.steps import Step
from loadtest.visit import Visit


@dataclass(frozen=True, slots=True)
class Findings:
    """Of one service. `open` and `closed` have each level once, all rounds together, with percentiles that are the
    median over rounds."""

    name: str
    info: Mapping[str, Any]
    open: Sequence[Measure]
    closed: Sequence[Measure]
    rounds: Sequence[Sequence[Measure]]
    """The open loop's levels, round by round."""
    windows: Mapping[str, Window]
    """By step: the service's own account."""
    best: MaxRate | None
    """The highest rate within the objective."""
    best_by_round: Sequence[MaxRate | None]
    law: Law | None
    """As its batches had it, where there were enough; otherwise as the service says."""
    lengths: "np.ndarray[Any, np.dtype[np.float64]]"
    """Tokens of the texts that were sent; of a typical one, where the service does not count them."""
    forecast: Forecast | None

    @property
    def steps(self) -> Sequence[Measure]:
        """All levels."""
        return [*self.open, *self.closed]


def find(name: str, visits: Sequence[Visit], info: Mapping[str, Any], metrics: str, objective_ms: float) -> Findings:
    """From all visits to one service; `info` and `metrics` are what it said of itself after them."""
    steps = {step.name: step for visit in visits for step in visit.steps if step.seconds > 0}
    together = {name: _together(visits, step, objective_ms) for name, step in steps.items()}
    in_order = sorted(together.values(), key=lambda one: one.level)
    opened = [one for one in in_order if one.loop == "open"]
    rounds = [
        [_measured(mine, step, objective_ms) for step in steps.values() if step.loop == "open" and _having(mine, step)]
        for number in sorted({visit.round for visit in visits})
        if (mine := [visit for visit in visits if visit.round == number])
    ]
    lengths = lengths_in(concatenated([visit.samples for visit in visits]))
    if not len(lengths):
        lengths = np.array([TYPICAL_TOKENS])
    best = max_rate(opened, objective_ms)
    law = law_of(info, devices_in(metrics), other_ms_in(_quiet(visits, opened)))
    if law is not None and (at_a_time := _side_by_side(info)):
        held = [one for one in opened if not one.client_limited and (best is None or one.level <= best.per_s)]
        each = [visit.of(one.step) for one in held for visit in visits if one.step in visit.marks]
        law = fitted(law, each, at_a_time)
    return Findings(
        name, info, opened, [one for one in in_order if one.loop == "closed"], rounds,
        {name: Window.of([visit.marks[name] for visit in _having(visits, step)]) for name, step in steps.items()},
        best, [max_rate(one, objective_ms) for one in rounds],
        law, lengths, forecast(law, lengths, objective_ms) if law is not None else None,
    )  # fmt: skip


def _side_by_side(info: Mapping[str, Any]) -> int:
    """How many batches its device runs at a time, so that a forward's time tells what a batch takes; 0 where it does
    not: a card's forwards queue up behind each other."""
    model = info.get("model")
    if not isinstance(model, Mapping) or str(model.get("device", "cuda")).startswith("cuda"):
        return 0
    return max(1, int(model.get("side_by_side") or 1))


def _having(visits: Sequence[Visit], step: Step) -> list[Visit]:
    return [visit for visit in visits if step.name in visit.marks]


def _measured(visits: Sequence[Visit], step: Step, objective_ms: float) -> Measure:
    """One level, in all of these visits that have it."""
    having = _having(visits, step)
    unsent = sum(int(visit.marks[step.name]["unsent"]) for visit in having)
    samples = concatenated([visit.of(step.name) for visit in having])
    return measure(samples, step, objective_ms, rounds=len(having), unsent=unsent)


def _together(visits: Sequence[Visit], step: Step, objective_ms: float) -> Measure:
    """One level in all rounds: counts and rates of all, and of each percentile the median over rounds, since a pause of
    the machine in one of them says nothing of the service."""
    single = [_measured([visit], step, objective_ms) for visit in _having(visits, step)]
    return replace(
        _measured(visits, step, objective_ms),
        percentiles_ms={p: float(np.median([one.percentiles_ms[p] for one in single])) for p in PERCENTILES},
        within_ms={p: float(np.median([one.within_ms[p] for one in single])) for p in PERCENTILES},
    )


def _quiet(visits: Sequence[Visit], opened: Sequence[Measure]) -> Table:
    """The samples of the lowest rate, where nothing but the service's own work takes time."""
    if not opened:
        return concatenated([visit.samples for visit in visits])
    return concatenated([visit.of(opened[0].step) for visit in visits if opened[0].step in visit.marks])
