"""How a step went, in one line for the terminal, while the test goes on."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from loadtest.samples import OUTCOMES, Sample
from loadtest.steps import Step


def summary_line(step: Step, samples: Sequence[Sample]) -> str:
    """Rate and latency of what was answered, and whatever else became of requests, from a step's counted samples."""
    counts = Counter(sample.outcome for sample in samples)
    answered_ms = [(one.ended_s - one.due_s) * 1e3 for one in samples if one.outcome == "answered"]
    parts = [f"{step.name:<14}", f"{len(samples) / step.seconds:8.1f} requests/s"]
    if answered_ms:
        p50, p95, p99 = np.percentile(answered_ms, [50, 95, 99])
        parts.append(f"p50 {p50:.1f} ms, p95 {p95:.1f}, p99 {p99:.1f}")
    parts += [f"{counts[outcome]} {outcome}" for outcome in OUTCOMES[1:] if counts[outcome]]
    return "  ".join(parts)
