"""Suggestions: what would help here, each with the gain that the measurements predict."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from app.doctor.lines import Kind

MOST = 3
LEAST_GAIN = 1.05
"""Less than this is lost in what a machine's speed varies anyhow."""
LEAST_GAIN_OF_FEWER = 1.1
"""Threads must hinder each other by so much: a disturbance hits those that wait for each other more than one alone."""
NEAR_BEST = 0.9
"""A call of fewer texts will do if it reaches so much of the best rate."""
WORTHWHILE_HALF = 1.2
"""A half type must be so many times as fast in a bare product before vectors are given up for it."""
BOUND = 0.5
"""Where a line has this part of a call, the call is bound by it."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One thing to do. `gain` is how many times the texts per second it is predicted to bring, where what it speaks of
    is what holds the service back; `because` are the measurements behind it."""

    what: str
    gain: float
    because: str


class Rate(NamedTuple):
    """A measured call: its texts and tokens, texts per second, milliseconds, and the parts of its time that are
    compute, matrix products, and synchronisation."""

    texts: int
    tokens: int
    texts_per_s: float
    ms: float
    compute: float
    products: float = 0.0
    waits: float = 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """All that suggestions are made from.

    `half_gains` are the half types in hardware with how many times as fast as in float32 a bare product was;
    `texts_per_s_by_workers` what so many workers carried side by side, `workers_asked` how many the settings want, 0
    for as many as pay. `all_threads_ms` and `one_thread_ms` are a full batch's. The law is the sweep's, the budget in
    tokens the one in effect, and `budget_is_set` where the settings name it. `visible_cards` are the cards that could
    be used, `used_cards` those that are.
    """

    kind: Kind
    batching: bool
    rates: Sequence[Rate]
    dtype: str = "float32"
    half_gains: Mapping[str, float | None] = field(default_factory=dict)
    cores: int = 1
    workers_asked: int = 0
    texts_per_s_by_workers: Mapping[int, float] = field(default_factory=dict)
    all_threads_ms: float | None = None
    one_thread_ms: float | None = None
    base_ms: float = 0.0
    token_us: float = 0.0
    knee_tokens: int = 0
    budget_tokens: int = 0
    budget_is_set: bool = False
    hidden_synchronisations: int = 0
    visible_cards: int = 0
    used_cards: int = 0

    @property
    def best(self) -> Rate:
        """The smallest call that is nearly as fast, by the text, as the fastest."""
        most = max(rate.texts_per_s for rate in self.rates)
        return next(rate for rate in self.rates if rate.texts_per_s >= NEAR_BEST * most)


def suggest(facts: Facts) -> Sequence[Suggestion]:
    """At most three, the largest gain first; shorter texts, which only the caller can send, are said last."""
    if not facts.rates:
        return ()
    makers: Sequence[Callable[[Facts], Suggestion | None]] = (
        _together, _half_type, _float32, _workers, _fewer_threads, _budget, _more_cards, _no_hidden_waits,
    )  # fmt: skip
    found = [one for make in makers if (one := make(facts)) is not None and one.gain >= LEAST_GAIN]
    found.sort(key=lambda one: -one.gain)
    shorter = _shorter_texts(facts)
    if shorter is not None and shorter.gain >= LEAST_GAIN:
        found = [*found[: MOST - 1], shorter]
    return found[:MOST]


def _together(facts: Facts) -> Suggestion | None:
    """Texts that travel together share what a call costs whatever its size."""
    alone, best = facts.rates[0], facts.best
    if alone.texts != 1 or best.texts == 1:
        return None
    because = (
        f"Measured: {alone.texts_per_s:.0f} texts per second one by one, {best.texts_per_s:.0f} in calls of "
        f"{best.texts}; such a call takes {best.ms:.3g} ms instead of {alone.ms:.3g}."
    )
    if not facts.batching:
        return Suggestion(
            f"Turn batching on (--batching on): up to {best.texts} texts then share a forward.",
            best.texts_per_s / alone.texts_per_s,
            because,
        )
    return Suggestion(
        f"Send texts together, or keep about {best.texts} requests under way: they then share forwards.",
        best.texts_per_s / alone.texts_per_s,
        because,
    )


def _half_type(facts: Facts) -> Suggestion | None:
    """From float32 to a type that the hardware multiplies faster."""
    gains = {name: gain for name, gain in facts.half_gains.items() if gain is not None and gain >= WORTHWHILE_HALF}
    if facts.kind == "simulated" or facts.dtype != "float32" or not gains:
        return None
    name, times = max(gains.items(), key=lambda item: item[1])
    part = facts.best.products
    return Suggestion(
        f"Compute in {name} (--dtype {name}): vectors then differ in the third digit.",
        1 / (1 - part + part / times),
        f"Measured: a bare matrix product is {times:.1f} times as fast in it, and such products are {part:.0%} of a "
        f"call of {facts.best.texts}.",
    )


def _float32(facts: Facts) -> Suggestion | None:
    """From a type that this CPU only imitates back to float32."""
    if facts.kind != "cpu" or facts.dtype == "float32":
        return None
    times = facts.half_gains.get(facts.dtype)
    if times is None or times >= 1:
        return None
    part = facts.best.products
    return Suggestion(
        "Compute in float32 (--dtype float32), which is also more exact.",
        1 / (1 - part + part * times),
        f"Measured: a bare matrix product in {facts.dtype} has {times:.2f} times the speed of one in float32, and "
        f"such products are {part:.0%} of a call of {facts.best.texts}.",
    )


def _workers(facts: Facts) -> Suggestion | None:
    """Where the number of workers is set and another one carries more."""
    rates = facts.texts_per_s_by_workers
    if facts.kind != "cpu" or not facts.workers_asked or not rates:
        return None
    now = min(rates, key=lambda count: abs(count - facts.workers_asked))
    best = max(rates, key=lambda count: rates[count])
    if best == now:
        return None
    word = "More" if best > now else "Fewer"
    return Suggestion(
        f"{word} workers (--workers {best}, or 0 for as many as pay).",
        rates[best] / rates[now],
        f"Measured side by side: {rates[now]:.0f} texts per second with {now}, {rates[best]:.0f} with {best}.",
    )


def _fewer_threads(facts: Facts) -> Suggestion | None:
    """Where threads that share an operator hinder each other."""
    if facts.all_threads_ms is None or facts.one_thread_ms is None or facts.cores < 2:
        return None
    if facts.all_threads_ms < LEAST_GAIN_OF_FEWER * facts.one_thread_ms:
        return None
    return Suggestion(
        "Fewer threads: grant each process one core (a CPU limit, or taskset), and run more of them.",
        facts.all_threads_ms / facts.one_thread_ms,
        f"Measured: a full batch takes {facts.all_threads_ms:.3g} ms on {facts.cores} threads, and "
        f"{facts.one_thread_ms:.3g} ms on one.",
    )


def _budget(facts: Facts) -> Suggestion | None:
    """Where the token budget is set below the knee."""
    if not facts.budget_is_set or not facts.token_us or facts.budget_tokens >= facts.knee_tokens:
        return None
    ms = [_by_law(facts, facts.budget_tokens), facts.base_ms + facts.token_us / 1000 * facts.knee_tokens]
    return Suggestion(
        f"A larger token budget (--max-batch-tokens {facts.knee_tokens}, or 0 for what the warm-up finds).",
        facts.knee_tokens / ms[1] / (facts.budget_tokens / ms[0]),
        f"By the law of the sweep, {facts.budget_tokens} tokens take {ms[0]:.3g} ms and {facts.knee_tokens} take "
        f"{ms[1]:.3g} ms.",
    )


def _more_cards(facts: Facts) -> Suggestion | None:
    """Where cards are there that are not used."""
    if facts.kind != "cuda" or not 0 < facts.used_cards < facts.visible_cards:
        return None
    return Suggestion(
        "Use every card (--device cuda --workers 0).",
        facts.visible_cards / facts.used_cards,
        f"{facts.used_cards} of {facts.visible_cards} visible cards serve; each has its own copy of the model. Not "
        "measured: it takes the cards to be alike, and enough requests.",
    )


def _no_hidden_waits(facts: Facts) -> Suggestion | None:
    """Where the host waits for the card at other places than at the end."""
    alone = facts.rates[0]
    if facts.kind != "cuda" or not facts.hidden_synchronisations or not alone.waits:
        return None
    return Suggestion(
        "Take the hidden synchronisations out of the model's own code (.item(), .cpu(), a test of a tensor).",
        1 / (1 - alone.waits),
        f"Measured: {facts.hidden_synchronisations} in a call of {alone.texts}, and {alone.waits:.0%} of its time is "
        "waiting while the card does nothing.",
    )


def _shorter_texts(facts: Facts) -> Suggestion | None:
    """Where the work is in proportion to the tokens."""
    best = facts.best
    if facts.kind == "simulated" or best.compute < BOUND or not facts.token_us:
        return None
    ms = [_by_law(facts, tokens) for tokens in (best.tokens, best.tokens / 2)]
    return Suggestion(
        "Send shorter texts where they need not be long: half as many tokens each.",
        ms[0] / ms[1],
        f"By the law of the sweep, {best.texts} texts of {best.tokens / best.texts:.0f} tokens take {ms[0]:.3g} ms, "
        f"and of half as many {ms[1]:.3g} ms; compute is {best.compute:.0%} of the call.",
    )


def _by_law(facts: Facts, tokens: float) -> float:
    """Milliseconds of so many tokens, in as many batches as the budget wants."""
    batches = math.ceil(tokens / facts.budget_tokens) if facts.budget_tokens else 1
    return batches * facts.base_ms + facts.token_us / 1000 * tokens
