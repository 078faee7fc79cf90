"""What was measured of one service at one level of load."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtest.samples import BILL, OUTCOMES, Outcome, Table
from loadtest.steps import Loop, Step

ON_SCHEDULE = 0.99
"""A client that sent at less than this part of the rate that was due measured itself."""
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Measure:
    """One step, or several rounds of it together. Rates are in requests a second, times in milliseconds.

    Latency counts from the moment a request was due. `percentiles_ms` are those of answers; in `within_ms` a request
    that got none has waited for ever, so that refusals make no service look quick.
    """

    step: str
    loop: Loop
    level: float
    """Requests a second that were wanted, or users."""
    rate: float
    """That came due (open loop), or were answered (closed)."""
    achieved: float
    """That were sent, as a part of those due; 1 in a closed loop."""
    requests: int
    counts: dict[Outcome, int]
    percentiles_ms: dict[int, float]
    within_ms: dict[int, float]
    goodput: float
    """Answers a second within the objective."""
    in_time: float
    """The part of all requests that was answered within the objective."""
    lag_ms: float
    """By how much the client sent late, at its 99th percentile."""
    bill_ms: dict[str, float]
    """Where the time went, in the mean over answers; empty where the service does not tell."""

    @property
    def client_limited(self) -> bool:
        """Whether the client did not keep to its schedule, so that the figures are not the service's alone."""
        return self.achieved < ON_SCHEDULE


def measure(samples: Table, step: Step, objective_ms: float, *, rounds: int = 1, unsent: int = 0) -> Measure:
    """Of a step's samples, from one round or several; `unsent` were due and never sent."""
    samples = samples.where(samples["counted"] > 0)
    outcome, latency_ms = samples["outcome"], samples["latency_ms"]
    requests = len(samples) + unsent
    answered_ms = np.sort(latency_ms[outcome == "answered"])
    in_time = int(np.searchsorted(answered_ms, objective_ms, side="right"))
    seconds = step.seconds * rounds
    return Measure(
        step.name,
        step.loop,
        step.level,
        (requests if step.loop == "open" else len(answered_ms)) / seconds,
        _achieved(samples, step, requests) if step.loop == "open" else 1.0,
        requests,
        {name: int(np.sum(outcome == name)) for name in OUTCOMES},
        {p: _percentile(answered_ms, len(answered_ms), p) for p in PERCENTILES},
        {p: _percentile(answered_ms, requests, p) for p in PERCENTILES},
        in_time / seconds,
        in_time / requests if requests else 0.0,
        _percentile(np.sort(samples["sent_s"] - samples["due_s"]) * 1e3, len(samples), 99),
        _bill_ms(samples.where(outcome == "answered")),
    )


def _percentile(ordered: NDArray[np.float64], of: int, percent: int) -> float:
    """The value that so many percent of `of` observations do not exceed, where those not in `ordered` are infinite."""
    if not of:
        return float("nan")
    place = max(0, int(np.ceil(of * percent / 100)) - 1)
    return float(ordered[place]) if place < len(ordered) else float("inf")


def _achieved(samples: Table, step: Step, requests: int) -> float:
    """The rate sent over the rate due: the requests of the window, over the time it took to send them."""
    if not len(samples):
        return 0.0
    overrun_s = max(0.0, float(np.max(samples["sent_s"])) - step.warmup_s - step.seconds)
    return len(samples) / requests * step.seconds / (step.seconds + overrun_s)


def _bill_ms(answers: Table) -> dict[str, float]:
    """The server's parts, and what is left of the client's time: the network, and both ends of it."""
    totals = answers["total_ms"]
    if not np.any(np.isfinite(totals)):
        return {}
    parts = {part: _mean(answers[f"{part}_ms"]) for part in BILL}
    return {**parts, "outside": _mean(answers["latency_ms"] - totals)}


def _mean(values: NDArray[np.float64]) -> float:
    """Of those that are there; 0 where none is."""
    known = values[np.isfinite(values)]
    return float(np.mean(known)) if len(known) else 0.0
