"""The workload: what the next request asks for, what its answer must be, and how it ended."""

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadtest.corpus import Corpus
from loadtest.protocols import Protocol, Rows, WrongAnswer
from loadtest.samples import EXPIRED, OK, SHED, Outcome

Traffic = Literal["single", "list", "mix"]
PROBES = 8
"""So many texts are embedded one by one at the start, to compare with later."""
LEAST_COSINE = 0.999
"""Between a text's vector alone and in company: half precision rounds differently in other batches."""


class Ask(NamedTuple):
    """One request: its body, how many texts are in it, and the row its only text must get, where that is known."""

    body: bytes
    n_texts: int
    expected: NDArray[np.float32] | None = None


class Workload:
    """Draws requests: single queries, lists of passages, or queries with a share of lists among them.

    One in `probe_every` single requests asks for a text whose vector is known from the start.
    """

    def __init__(
        self, corpus: Corpus, protocol: Protocol, model: str | None, *, traffic: Traffic = "single",
        list_items: int = 32, list_share: float = 0.05, probe_every: int = 20, seed: int = 0,
    ) -> None:  # fmt: skip
        self.protocol = protocol
        self._corpus = corpus
        self._model = model
        self._list_items = list_items
        self._list_share = {"single": 0.0, "list": 1.0, "mix": list_share}[traffic]
        self._probe_every = probe_every
        self._rng = random.Random(seed)
        self._probes = [corpus.query() for _ in range(PROBES)]
        self._expected: list[NDArray[np.float32]] = []
        self._dimension = 0

    def probes(self) -> list[Ask]:
        """One request for each text that is compared later; `learn` takes their rows."""
        return [self._single(text) for text in self._probes]

    def learn(self, rows: Sequence[Rows]) -> None:
        """What the server answers to each probe while it has nothing else to do."""
        self._expected = [one[0] for one in rows]
        self._dimension = rows[0].shape[1]

    def next(self) -> Ask:
        """The next request."""
        if self._rng.random() < self._list_share:
            texts = [self._corpus.passage() for _ in range(self._list_items)]
            return Ask(self.protocol.body(texts, self._model), len(texts))
        if self._expected and self._rng.random() * self._probe_every < 1:
            chosen = self._rng.randrange(PROBES)
            return self._single(self._probes[chosen], self._expected[chosen])
        return self._single(self._corpus.query())

    def check(self, ask: Ask, content: bytes | None) -> Rows:
        """The rows of a 200; raises WrongAnswer where they cannot be the answer."""
        rows = self.protocol.read(content, ask.n_texts)
        if self._dimension and rows.shape[1] != self._dimension:
            raise WrongAnswer(f"a vector has {rows.shape[1]} numbers where there were {self._dimension} at the start")
        if ask.expected is not None:
            cosine = float(rows[0] @ ask.expected / np.linalg.norm(rows[0]) / np.linalg.norm(ask.expected))
            if not cosine >= LEAST_COSINE:
                raise WrongAnswer(f"a text has another vector than at the start: their cosine is {cosine:.4f}")
        return rows

    def _single(self, text: str, expected: NDArray[np.float32] | None = None) -> Ask:
        return Ask(self.protocol.body([text], self._model), 1, expected)


def outcome_of(status: int) -> Outcome:
    """By its status: a refusal is no answer, however quick it was; 0 is a connection that broke."""
    if status == OK:
        return "answered"
    return {SHED: "shed", EXPIRED: "expired"}.get(status, "failed")  # type: ignore[return-value]
