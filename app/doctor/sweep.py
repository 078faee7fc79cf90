"""The sweep of batch sizes: how throughput grows with the batch, and where it stops."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.errors import OutOfMemory
from app.vectorizers.base import Encoding, TextInput, Vectorizer, WarmupStep
from app.vectorizers.warmup import LIMIT_S, NEAR_PEAK, TEXT_TOKENS, fit, sweep, up_to_peak


@dataclass(frozen=True, slots=True)
class Step:
    """A batch of one size; `reach` is its part of the best throughput in the sweep."""

    texts: int
    tokens: int
    ms: float
    tokens_per_s: float
    reach: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """Batches of growing size, and their law: a batch takes `base_ms` and `token_us` for each token.

    `knee_tokens` is the smallest batch within 5% of what the law promises at best, as far as throughput rises; where it
    still does at the end of the sweep, the knee is not `reached`. `budget_tokens` is the token budget in effect.
    """

    steps: Sequence[Step]
    base_ms: float
    token_us: float
    knee_tokens: int
    reached: bool
    budget_tokens: int


def find_sweep(vectorizer: Vectorizer[Any], max_batch_items: int) -> Sweep:
    """The warm-up's own sweep; where there was none, a short one is made now."""
    model = vectorizer.info
    if model.warmup:
        return sweep_of(model.warmup, model.max_batch_tokens)
    text_tokens = min(TEXT_TOKENS, model.max_input_tokens)
    encodings = {tokens: _encoding(vectorizer, tokens) for tokens in range(1, text_tokens + 1)}

    def run(items: int, tokens_each: int) -> None:
        try:
            vectorizer([encodings[tokens_each]] * items)
        except OutOfMemory as error:
            raise MemoryError from error

    found = sweep(run, text_tokens=text_tokens, max_items=max_batch_items, time_limit_s=LIMIT_S["quick"])
    return sweep_of(found.steps, model.max_batch_tokens)


def _encoding(vectorizer: Vectorizer[Any], tokens: int) -> Encoding:
    """One of so many tokens, whether or not the vectorizer adds special ones to ids."""
    (plain,) = vectorizer.tokenize([TextInput([0] * tokens)])
    added = plain.n_tokens - tokens
    encoding: Encoding = vectorizer.tokenize([TextInput([0] * max(1, tokens - added))])[0] if added else plain
    return encoding


def sweep_of(steps: Sequence[WarmupStep], budget_tokens: int) -> Sweep:
    """What some measurements say."""
    rates = [step.tokens / step.seconds for step in steps]
    useful = up_to_peak(steps)
    base_s, token_s = fit(useful)
    knee = math.ceil(NEAR_PEAK / (1 - NEAR_PEAK) * base_s / token_s)
    return Sweep(
        [
            Step(step.items, step.tokens, step.seconds * 1e3, rate, rate / max(rates))
            for step, rate in zip(steps, rates, strict=True)
        ],
        base_s * 1e3,
        token_s * 1e6,
        max(useful[0].tokens, min(knee, useful[-1].tokens)),
        knee <= useful[-1].tokens or len(useful) < len(steps),
        budget_tokens,
    )
