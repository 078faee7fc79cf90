"""Finding the token budget by measuring: the smallest batch within 5% of the best throughput."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from tqdm import tqdm

from app.errors import StartFailed
from app.vectorizers.base import WarmupStep

Thoroughness = Literal["full", "quick", "off"]
LIMIT_S = {"full": 4.0, "quick": 1.0}
"""How long the sweep may take, by its thoroughness."""
TEXT_TOKENS = 32
"""Length of the texts in the sweep: of the order of a query or a sentence."""
FIRST_TOKENS = 32
LAST_TOKENS = 65_536
NEAR_PEAK = 0.95
LEAST_STEPS = 5
"""So many sizes are measured however long they take: a slow first moment must not pass for the whole law."""
MOST_TURNS = 5
LEAST_BUDGET = 512
"""Every device measured so far takes more than this to fill; a measurement that says less was disturbed."""


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
    """Measure forwards of doubling size until memory or half of `time_limit_s` runs out; then measure all sizes again,
    in turns, while time is left.

    `run(items, tokens_each)` runs one forward and returns when it is done; MemoryError ends the ascent. The best time
    of each size counts: taken in turns, a disturbance of some moments does not fall on one size alone.
    """
    end = clock() + time_limit_s
    steps: list[WarmupStep] = []
    tokens = min(FIRST_TOKENS, text_tokens)
    with _progress(time_limit_s) as progress:
        while tokens <= min(LAST_TOKENS, max_items * text_tokens):
            items, each = max(1, tokens // text_tokens), min(tokens, text_tokens)
            try:
                run(items, each)  # the first of a shape pays for allocations
                step = WarmupStep(items * each, items, _timed(run, items, each, clock))
            except MemoryError:
                break
            steps.append(step)
            _show(progress, f"{step.tokens} tokens", time_limit_s - (end - clock()))
            if len(steps) >= LEAST_STEPS and clock() + 4 * step.seconds > end - time_limit_s / 2:
                break
            tokens *= 2
        for _ in range(MOST_TURNS):
            if clock() + sum(step.seconds for step in steps) > end:
                break
            again = [_timed(run, step.items, step.tokens // step.items, clock) for step in steps]
            steps = [
                WarmupStep(step.tokens, step.items, min(step.seconds, seconds))
                for step, seconds in zip(steps, again, strict=True)
            ]
            _show(progress, "all again", time_limit_s - (end - clock()))
    if not steps:
        raise StartFailed("The device has too little memory for one short text; free some, or serve a smaller model.")
    useful = up_to_peak(steps)
    base_s, token_s = fit(useful)
    return Budget(smallest_near_peak(base_s, token_s, useful), base_s, token_s, steps)


def _progress(time_limit_s: float) -> "tqdm[Any]":
    """A bar on a terminal, and nothing elsewhere."""
    return tqdm(
        total=time_limit_s, desc="measuring the model", bar_format="{desc} |{bar}| {postfix}", leave=False, disable=None
    )


def _show(progress: "tqdm[Any]", what: str, spent_s: float) -> None:
    progress.n = spent_s
    progress.set_postfix_str(what)


def describe_steps(steps: Sequence[WarmupStep]) -> str:
    """The measurements in one line, as tokens:milliseconds."""
    return " ".join(f"{step.tokens}:{step.seconds * 1e3:.3g}" for step in steps)


def _timed(run: Callable[[int, int], None], items: int, each: int, clock: Callable[[], float]) -> float:
    started = clock()
    run(items, each)
    return clock() - started


def up_to_peak(steps: Sequence[WarmupStep]) -> Sequence[WarmupStep]:
    """The steps as far as throughput rises, and at least `LEAST_STEPS`: where the caches of a CPU no longer hold a
    batch, a larger one is slower for each token."""
    peak = max(range(len(steps)), key=lambda i: steps[i].tokens / steps[i].seconds)
    return steps[: max(peak + 1, LEAST_STEPS)]


def smallest_near_peak(base_s: float, token_s: float, steps: Sequence[WarmupStep]) -> int:
    """The fewest tokens n with n / (base + slope·n) at least 95% of 1 / slope, within what was measured.

    The law is asked rather than the single steps: on a machine with other work to do, one lucky small batch would pass
    for the peak. Never less than `LEAST_BUDGET`, unless even that was too much to measure.
    """
    tokens = math.ceil(NEAR_PEAK / (1 - NEAR_PEAK) * base_s / token_s)
    return min(max(tokens, LEAST_BUDGET), max(steps[-1].tokens, LEAST_BUDGET))


def fit(steps: Sequence[WarmupStep]) -> tuple[float, float]:
    """Least squares for t = base + slope·tokens, weighted so that relative errors count alike; neither is negative."""
    if len(steps) < 2:
        return 0.0, steps[0].seconds / steps[0].tokens
    tokens = np.array([step.tokens for step in steps], dtype=float)
    seconds = np.array([step.seconds for step in steps], dtype=float)
    slope, base = np.polyfit(tokens, seconds, 1, w=1 / seconds)
    return max(0.0, float(base)), max(1e-12, float(slope))
