"""The forecast: what a service should carry, by the law that it has learnt and the theory of its queue."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.metrics import BUSY, Window
from loadtest.samples import Table
from loadtest.theory import Service, max_rate_per_s, play

OTHER_MS = 3.0
"""Time outside queue and forward, where nothing was measured: parsing, tokenizing, answering, the network."""
TYPICAL_TOKENS = 20.0
MEAN_TO_DEVIATION = math.sqrt(math.pi / 2)
"""The standard deviation over the mean absolute one, where errors are normal."""


@dataclass(frozen=True, slots=True)
class Law:
    """One replica: its law of service, by how much that may be wrong (a share), and what comes besides."""

    service: Service
    error: float
    other_ms: float = OTHER_MS

    def __str__(self) -> str:
        one = self.service
        limits = [f"{one.max_items} inputs"] + ([f"{one.max_tokens:.0f} tokens"] if np.isfinite(one.max_tokens) else [])
        return (
            f"{one.base_s * 1e3:.2f} ms + {one.token_s * 1e6:.2f} ms per 1000 tokens a batch (±{self.error:.1%}), "
            f"which scatters by {one.scatter:.0%}; batches of up to {' or '.join(limits)}, {one.devices} at a time, "
            f"{self.other_ms:.1f} ms besides"
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        endless = not np.isfinite(self.service.max_tokens)
        service = {**self.service._asdict(), **({"max_tokens": None} if endless else {})}
        return {"service": service, "error": self.error, "other_ms": self.other_ms}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> "Law":
        """What `as_dict` made; raises LookupError or TypeError where it is something else."""
        service: dict[str, Any] = {name: np.inf if value is None else value for name, value in told["service"].items()}
        return cls(Service(**service), told["error"], told["other_ms"])


@dataclass(frozen=True, slots=True)
class Forecast:
    """The highest rate of single requests within an objective, and where it lies if the law is wrong as usual."""

    per_s: float
    least_per_s: float
    most_per_s: float


def devices_in(metrics: str) -> int:
    """How many devices a service has, by its metrics; 1 where they do not tell."""
    return max(1, len(Window([("", metrics, 1.0)]).by_label(BUSY, "device")))


def law_of(info: Mapping[str, Any], devices: int = 1, other_ms: float = OTHER_MS) -> Law | None:
    """From what a service says of itself in `/info`; None where it does not say it.

    While single texts come, batches are no larger than `short_batch_tokens`: what reaches most of the throughput. The
    error that a service tells is the mean of single batches, so that it is their scatter as well.
    """
    try:
        scheduler, settings = info["scheduler"], info["settings"]
        error = float(scheduler["prediction_error"])
        service = Service(
            base_s=float(scheduler["batch_base_ms"]) / 1e3,
            token_s=float(scheduler["batch_ms_per_1000_tokens"]) / 1e6,
            max_items=int(settings["max_batch_items"]) if settings["batching"] else 1,
            max_tokens=float(min(scheduler["max_batch_tokens"], scheduler["short_batch_tokens"])),
            devices=devices,
            scatter=error * MEAN_TO_DEVIATION,
        )
        law = Law(service, error, other_ms)
    except (LookupError, TypeError, ValueError):  # another server's page of that name, or one that is still loading
        return None
    return law if service.base_s + service.token_s > 0 else None


def forecast(law: Law, lengths: NDArray[np.float64], objective_ms: float) -> Forecast:
    """By the law, and by one that is slower or faster by its usual error."""
    objective_s, other_s = objective_ms / 1e3, law.other_ms / 1e3
    rates = [
        max_rate_per_s(law.service.scaled(factor), lengths, objective_s, other_s=other_s)
        for factor in (1.0, 1 + law.error, 1 / (1 + law.error))
    ]
    return Forecast(rates[0], min(rates), max(rates))


def expected_ms(law: Law, lengths: NDArray[np.float64], rate_per_s: float) -> dict[str, float]:
    """At this rate: the mean wait for the device, and the latency's percentiles, in milliseconds."""
    run = play(rate_per_s, law.service, lengths)
    p50, p95, p99 = np.percentile(run.latencies_s, [50, 95, 99]) * 1e3 + law.other_ms
    return {"wait": float(run.waits_s.mean() * 1e3), "p50": float(p50), "p95": float(p95), "p99": float(p99)}


def lengths_in(samples: Table) -> NDArray[np.float64]:
    """Tokens of single texts, from samples or any table with a column `tokens`; empty where it tells none."""
    if "tokens" not in samples.names:
        return np.array([], dtype=np.float64)
    items = samples["items"] if "items" in samples.names else np.ones(len(samples))
    counted = items > 0
    tokens = samples["tokens"][counted] / items[counted]
    return np.asarray(tokens[np.isfinite(tokens) & (tokens > 0)], dtype=np.float64)


def other_ms_in(samples: Table) -> float:
    """The median time that answers spent outside queue and forward."""
    if "total_ms" not in samples.names:
        return OTHER_MS
    rest = samples["latency_ms"] - samples["queue_ms"] - samples["forward_ms"]
    known = rest[np.isfinite(rest) & (samples["outcome"] == "answered")]
    return float(np.median(known)) if len(known) else OTHER_MS
