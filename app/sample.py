"""One sample: what the service has done in a second, from the differences of what it counts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from app.api.ledger import Page
from app.diagnosis import Numbers
from app.metrics import Totals

ENDS = {429: "shed", 499: "abandoned", 503: "refused", 504: "expired"}
"""What statuses mean besides 2xx (answered), other 4xx (refused) and other 5xx (failed)."""
SEGMENTS = ("parse", "tokenize", "queue", "forward", "respond")

Sample = dict[str, Any]
"""As the dashboard reads it."""


def of_requests(before: Totals, after: Totals, routes: frozenset[str]) -> Sample:
    """How the requests to these routes ended."""
    ended = dict.fromkeys(("answered", "refused", "shed", "expired", "abandoned", "failed"), 0)
    for (route, status), count in after.requests.items():
        if route in routes:
            ended[_end(int(status))] += count - before.requests.get((route, status), 0)
    return {"requests": ended}


def _end(status: int) -> str:
    if status in ENDS:
        return ENDS[status]
    return "answered" if status < 400 else "refused" if status < 500 else "failed"


def of_answers(page: Page) -> Sample:
    """Latency, the mean bill, and the slowest."""
    slow = [{"at": one.at, **_shown(one.facts)} for one in page.slowest]
    if not page.shares:
        return {"latency_ms": None, "bill_ms": None, "slow": slow}
    shares_ms = np.array(page.shares) * 1e3
    p50, p95, p99 = np.percentile(shares_ms[:, 0], (50, 95, 99))
    return {
        "latency_ms": {"p50": p50, "p95": p95, "p99": p99},
        "bill_ms": dict(zip(SEGMENTS, shares_ms[:, 1:].mean(axis=0).tolist(), strict=True)),
        "slow": slow,
    }


def _shown(facts: Mapping[str, Any]) -> Sample:
    """The facts of a slow request, with its segments together."""
    bill_ms = {name: facts[f"{name}_ms"] for name in SEGMENTS}
    kept = ("request_id", "path", "lane", "inputs", "total_ms", "waited_for", "batch_items", "batch_tokens")
    return {**{name: facts[name] for name in kept}, "bill_ms": bill_ms}


def of_batches(before: Totals, after: Totals, seconds: float) -> Sample:
    """What went to the devices in so many seconds."""
    was_busy_s = before.busy_s or [0.0] * len(after.busy_s)
    busy_s = [now - then for now, then in zip(after.busy_s, was_busy_s, strict=True)]
    return {
        "items": after.items - before.items,
        "tokens": after.tokens - before.tokens,
        "padding_tokens": after.padding_tokens - before.padding_tokens,
        "batches": [now - then for now, then in zip(after.batches, before.batches, strict=True)],
        "waited_for": {cause: n - before.causes[cause] for cause, n in after.causes.items()},
        "device_busy": min(1.0, sum(busy_s) / len(busy_s) / seconds) if busy_s else 0.0,
    }


def numbers_of(samples: Sequence[Sample], reach: Callable[[float], float | None]) -> Numbers:
    """Of the last samples, taken together."""
    batches = sum(sum(sample["batches"]) for sample in samples)
    answered = [(sample["bill_ms"], sample["requests"]["answered"]) for sample in samples if sample["bill_ms"]]
    n_answered = sum(n for _, n in answered)
    return Numbers(
        requests=sum(sum(sample["requests"].values()) for sample in samples),
        late=sum(sample["requests"]["shed"] + sample["requests"]["expired"] for sample in samples),
        device_busy=sum(sample["device_busy"] for sample in samples) / len(samples),
        batch_items=sum(sample["items"] for sample in samples) / max(1, batches),
        batch_reach=reach(sum(sample["tokens"] for sample in samples) / max(1, batches)),
        queue_ms=sum(bill_ms["queue"] * n for bill_ms, n in answered) / max(1, n_answered),
        loop_lag_ms=float(np.median([sample["loop_lag_ms"] for sample in samples])),
    )
