"""Finding the token budget by measuring: the smallest batch within 5% of the best throughput."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.vectorizers.base import WarmupStep

TEXT_TOKENS = 32
"""Length of the texts in the sweep: of the order of a query or a sentence."""
FIRST_TOKENS = 32
LAST_TOKENS = 65_536
NEAR_PEAK = 0.95
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Budget:
    """What the sweep found: the budget, the law t = `base_s` + `token_s`·tokens, and the steps behind both."""

    max_batch_tokens: int
    base_s: float
    token_s: float
    steps: Sequence[WarmupStep]


def sweep(
    run: Callable[[int, int], None],
    *,
    text_tokens: int,
    max_items: int,
    time_limit_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Budget:
    """Measure forwards of doubling size until throughput stops rising, memory or `time_limit_s` runs out.

    `run(items, tokens_each)` runs one forward and returns when it is done; MemoryError ends the sweep.
    """
    steps: list[WarmupStep] = []
    started = clock()
    tokens = min(FIRST_TOKENS, text_tokens)
    while tokens <= min(LAST_TOKENS, max_items * text_tokens):
        items, each = max(1, tokens // text_tokens), min(tokens, text_tokens)
        try:
            seconds = _best_of(run, items, each, clock)
        except MemoryError:
            break
        steps.append(WarmupStep(items * each, items, seconds))
        spent = clock() - started
        if _past_the_knee(steps) or spent + 2 * (ROUNDS + 1) * seconds > time_limit_s:
            break
        tokens *= 2
    base_s, token_s = fit(steps)
    return Budget(smallest_near_peak(steps), base_s, token_s, steps)


def _best_of(run: Callable[[int, int], None], items: int, each: int, clock: Callable[[], float]) -> float:
    run(items, each)  # the first of a shape pays for allocations
    times = []
    for _ in range(ROUNDS):
        started = clock()
        run(items, each)
        times.append(clock() - started)
    return min(times)


def _past_the_knee(steps: Sequence[WarmupStep]) -> bool:
    """Twice in a row no better than 2% above the best before."""
    rates = [step.tokens / step.seconds for step in steps]
    return len(rates) > 3 and max(rates[-2:]) < 1.02 * max(rates[:-2])


def smallest_near_peak(steps: Sequence[WarmupStep]) -> int:
    """The fewest tokens whose throughput is within 5% of the best."""
    peak = max(step.tokens / step.seconds for step in steps)
    return next(step.tokens for step in steps if step.tokens / step.seconds >= NEAR_PEAK * peak)


def fit(steps: Sequence[WarmupStep]) -> tuple[float, float]:
    """Least squares for t = base + slope·tokens, weighted so that relative errors count alike; neither is negative."""
    if len(steps) < 2:
        return 0.0, steps[0].seconds / steps[0].tokens
    tokens = np.array([step.tokens for step in steps], dtype=float)
    seconds = np.array([step.seconds for step in steps], dtype=float)
    slope, base = np.polyfit(tokens, seconds, 1, w=1 / seconds)
    return max(0.0, float(base)), max(1e-12, float(slope))
