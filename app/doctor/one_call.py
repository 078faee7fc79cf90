"""Measuring calls of one size: by the clock, and in turns with that by whoever looks inside."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from app.doctor.bill import NOTHING, Bill, Counts, LeftOut, Measured, bill_of
from app.doctor.lines import Key, Kind
from app.doctor.texts import inputs
from app.errors import BackendFailed, ConvoyError, OutOfMemory
from app.vectorizers.base import Encoding, Vectorizer

SIZES = (1, 8, 64, 512)
"""Texts in a call."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 30
BUDGET_S = 4.0
"""How long one size is measured, unless the least number of rounds takes longer."""
SHORT_S = 0.1
"""A call that takes longer does not feel what was in the caches before it."""
LONGEST_CALL_S = 5.0
"""A call that would take longer by the law of the warm-up is left out."""


class Inside(Protocol):
    """Looks into calls of one size."""

    def look(self, forward_s: float) -> Sequence[Mapping[Key, float]]:
        """What each line has, in seconds, of a call that took so many seconds from encodings to rows, for one or more
        such calls."""

    @property
    def counts(self) -> Counts:
        """What there was in one call."""

    @property
    def slower(self) -> float:
        """How many times as long calls took because somebody looked inside."""


class ByLaw:
    """Knows what a simulated device takes: its law says so."""

    counts = NOTHING
    slower = 1.0

    def __init__(self, law: Mapping[str, Any], texts: int, tokens: int) -> None:
        self._device_s = (law["base_ms"] + law["item_ms"] * texts + law["token_ms"] * tokens) / 1000

    def look(self, forward_s: float) -> Sequence[Mapping[Key, float]]:
        return [{"compute": self._device_s, "python": max(0.0, forward_s - self._device_s)}]


MakeInside = Callable[[Callable[[], object], float], Inside]
"""From what runs one call, and how many seconds that takes."""


def measure(
    vectorizer: Vectorizer[Any],
    texts: int,
    *,
    kind: Kind,
    operator_us: float,
    make_inside: MakeInside | None,
    count_batches: Callable[[Sequence[Encoding]], int],
    clock: Callable[[], float] = time.perf_counter,
) -> Bill | LeftOut:
    """The bill of a call of so many texts; `make_inside` None is for the simulated device."""
    model = vectorizer.info
    wanted = inputs(texts, model)
    encodings = vectorizer.tokenize(wanted)
    tokens = sum(one.n_tokens for one in encodings)
    predicted_s = model.batch_base_s + model.batch_token_s * tokens
    if predicted_s > LONGEST_CALL_S:
        return LeftOut(texts, f"one call would take about {predicted_s:.0f} s")
    try:
        _first(vectorizer, encodings)
        started = clock()
        vectorizer(encodings)
        took_s = clock() - started
        if make_inside is None:
            inside: Inside = ByLaw(model.details["law"], texts, tokens)
        else:
            inside = make_inside(lambda: vectorizer(encodings), took_s)
        whole_s, parts = _repeat(vectorizer, wanted, inside, clock)
    except OutOfMemory:
        return LeftOut(texts, "the device has too little memory for it")
    measured = Measured(texts, tokens, count_batches(encodings), whole_s, parts, inside.counts, inside.slower)
    return bill_of(measured, kind, operator_us)


def _first(vectorizer: Vectorizer[Any], encodings: Sequence[Encoding]) -> None:
    """The first call, which pays for whatever this size needs; if the model cannot be run at all, it fails here."""
    try:
        vectorizer(encodings)
    except ConvoyError:
        raise
    except Exception as error:
        raise BackendFailed(f"{type(error).__name__}: {error}") from error


def _repeat(
    vectorizer: Vectorizer[Any], wanted: Sequence[Any], inside: Inside, clock: Callable[[], float]
) -> tuple[list[float], dict[Key, list[float]]]:
    """Call until the time for it is over, each time once by the clock and once with a look inside, so that a
    disturbance of some moments falls on both; seconds of the whole calls, and their lines' parts of them."""
    whole_s: list[float] = []
    parts: dict[Key, list[float]] = {"tokenization": []}
    end = clock() + BUDGET_S
    while len(whole_s) < LEAST_ROUNDS or (len(whole_s) < MOST_ROUNDS and clock() < end):
        if not whole_s or whole_s[-1] < SHORT_S:
            vectorizer(vectorizer.tokenize(wanted))  # what looked inside has emptied the caches
        started = clock()
        encodings = vectorizer.tokenize(wanted)
        tokenized = clock()
        vectorizer(encodings)
        done = clock()
        whole_s.append(done - started)
        parts["tokenization"].append((tokenized - started) / whole_s[-1])
        for divided in inside.look(done - tokenized):
            for key, seconds in divided.items():
                parts.setdefault(key, []).append(seconds / whole_s[-1])
    return whole_s, parts
