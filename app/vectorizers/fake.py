"""A simulated device: deterministic rows, a known law of service time, and faults on demand.

It ships with the product so that a deployment, a load test or a client can be tried without a model, and says what it
is in the log and in `/info`.
"""

import hashlib
import re
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import OutOfMemory, StartFailed, TokenizerFailed, WrongModel
from app.vectorizers.base import Matrix, ModelInfo, TextInput, Token, require_finite
from app.vectorizers.pairs import share_room

PREFIX = "fake://"
VOCABULARY_SIZE = 30_000
TYPICAL_TOKENS = 12
"""Of a query: for so many, the law by tokens that is announced agrees with the true one by items."""
N_SPECIAL = 2
"""Tokens added to each text, as BERT adds one at either end; a pair has one more between its texts."""
BEGIN = Token(0, "[CLS]", True, None, None)
END = Token(1, "[SEP]", True, None, None)
LARGEST_LOGIT = 8.0


class FakeLaw(BaseModel):
    """How the simulated device behaves: `base_ms + item_ms·items + token_ms·tokens` a call, and its faults.

    With `host_ms` it works by itself, as a GPU does: a call first keeps its thread busy for so long, beside the call
    before, and then waits for its turn on the device.

    With `labels` it classifies texts and pairs of texts instead of embedding them: rows are so many logits.

    `fail_on`, `nan_on`, `slow_on`, `die_on`: a call that carries a text with this word in it raises, returns NaN in
    that row, takes `slow_ms` longer, ends its worker's thread. `oom_above`: more items than this run out of memory.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dim: int = Field(384, ge=1)
    labels: int = Field(0, ge=0)
    base_ms: float = Field(5.0, ge=0)
    item_ms: float = Field(0.2, ge=0)
    token_ms: float = Field(0.0, ge=0)
    host_ms: float = Field(0.0, ge=0)
    max_tokens: int = Field(512, gt=N_SPECIAL)
    oom_above: int = Field(0, ge=0)
    slow_ms: float = Field(0.0, ge=0)
    fail_on: str = ""
    nan_on: str = ""
    slow_on: str = ""
    die_on: str = ""

    @classmethod
    def parse(cls, url: str) -> "FakeLaw":
        """Read `fake://?dim=384&base_ms=5&…`; raises StartFailed for an unknown name or a bad value."""
        try:
            return cls.model_validate(dict(parse_qsl(url.partition("?")[2])))
        except ValidationError as error:
            problem = error.errors()[0]
            raise StartFailed(
                f"--model {PREFIX}: {problem['loc'][0]} = {problem['input']!r}: {problem['msg']}. "
                f"It takes {', '.join(cls.model_fields)}."
            ) from None


class FakeEncoding(NamedTuple):
    """The words that fit, joined again, of the text and of the second one of a pair; and how many tokens they are."""

    text: str
    n_tokens: int
    n_cut: int
    pair: str | None = None

    @property
    def whole(self) -> str:
        """Both texts as one."""
        return self.text if self.pair is None else f"{self.text}\0{self.pair}"


class FakeVectorizer:
    """Pretends to be a device: sleeps as its law says and derives each row from the text alone.

    Rows are unit vectors, or logits where the law has labels. A token is a word; each text has two special tokens
    besides.
    """

    def __init__(
        self, law: FakeLaw, *, name: str, max_batch_tokens: int, max_batch_items: int, workers: int = 1
    ) -> None:
        self._law = law
        self._name = name
        self._workers = max(1, workers) * (2 if law.host_ms else 1)
        self._others: dict[int, FakeVectorizer] = {}
        self._device = threading.Lock()
        self._max_batch_items = max_batch_items
        self._max_batch_tokens = max_batch_tokens or max(1, max_batch_items) * law.max_tokens

    @property
    def info(self) -> ModelInfo:
        law = self._law
        return ModelInfo(
            name=self._name,
            kind="classification" if law.labels else "embedding",
            labels=tuple(f"LABEL_{i}" for i in range(law.labels)),
            dimension=self._dimension,
            max_input_tokens=law.max_tokens,
            vocabulary_size=VOCABULARY_SIZE,
            device="simulated",
            dtype="float32",
            max_batch_tokens=self._max_batch_tokens,
            workers=self._workers,
            batch_base_s=law.base_ms / 1000,
            batch_token_s=(law.item_ms / TYPICAL_TOKENS + law.token_ms) / 1000,
            ceiling_tokens_per_s=self._ceiling_tokens_per_s(),
            details={"simulated": True, "law": law.model_dump(), **self._details()},
        )

    @property
    def _dimension(self) -> int:
        return self._law.labels or self._law.dim

    def _ceiling_tokens_per_s(self) -> float:
        """By its law, with the largest batch of queries that it takes."""
        items = max(1, min(self._max_batch_items, self._max_batch_tokens // TYPICAL_TOKENS))
        tokens = items * TYPICAL_TOKENS
        batch_s = (self._law.base_ms + self._law.item_ms * items + self._law.token_ms * tokens) / 1000
        devices = self._workers // 2 if self._law.host_ms else self._workers
        return devices * tokens / batch_s if batch_s else 0.0

    def _details(self) -> dict[str, str | None]:
        if not self._law.labels:
            return {}
        return {"activation": "Sigmoid" if self._law.labels == 1 else "Identity", "problem_type": None}

    @property
    def host_s(self) -> float:
        return self._law.host_ms / 1000

    def computed_tokens(self, sizes: Sequence[int]) -> int:
        """No padding."""
        return sum(sizes)

    def tokenize(self, inputs: Sequence[TextInput]) -> list[FakeEncoding]:
        return [self._encode(one) for one in inputs]

    def _encode(self, one: TextInput) -> FakeEncoding:
        if isinstance(one.content, str):
            words = (one.prompt + one.content).split()
        else:
            words = [f"#{token_id}" for token_id in one.content]
        second = [] if one.pair is None else one.pair.split()
        n_special = N_SPECIAL + (one.pair is not None)
        total = len(words) + len(second)
        counts = share_room(len(words), len(second), max(0, self._law.max_tokens - n_special))
        text, pair = (
            " ".join(part[len(part) - count :] if one.cut_left else part[:count])
            for part, count in zip((words, second), counts, strict=True)
        )
        return FakeEncoding(text, sum(counts) + n_special, total - sum(counts), None if one.pair is None else pair)

    def __call__(self, inputs: Sequence[str] | Sequence[FakeEncoding], *, normalize: bool | None = None) -> Matrix:
        encodings = [self._encode(TextInput(one)) if isinstance(one, str) else one for one in inputs]
        if not encodings:
            return np.empty((0, self._dimension), dtype=np.float32)
        self._spend(encodings)
        rows = self._drawn([one.whole for one in encodings])
        rows *= LARGEST_LOGIT / 2**15 if self._law.labels else 1 / np.linalg.norm(rows, axis=1, keepdims=True)
        return self._checked(rows, encodings)

    def token_vectors(self, encodings: Sequence[FakeEncoding]) -> list[Matrix]:
        """Rows drawn from each text and the token's place in it, not normalised."""
        if self._law.labels:
            raise WrongModel("The simulated device classifies texts; it gives no vectors.")
        if not encodings:
            return []
        self._spend(encodings)
        return [
            self._checked(self._drawn([f"{place} {one.text}" for place in range(one.n_tokens)]), [one] * one.n_tokens)
            for one in encodings
        ]

    def tokens(self, texts: Sequence[str], *, special: bool) -> list[list[Token]]:
        return [[BEGIN, *_words(text), END] if special else _words(text) for text in texts]

    def decode(self, ids: Sequence[Sequence[int]], *, skip_special: bool) -> list[str]:
        """As `#id`, which is a word with that id."""
        return [" ".join(_names(one, skip_special=skip_special)) for one in ids]

    def _spend(self, encodings: Sequence[FakeEncoding]) -> None:
        """Take the time the law says, and fail where it says."""
        law = self._law
        if law.die_on and any(law.die_on in one.whole for one in encodings):
            raise SystemExit(f"a text with {law.die_on!r} in it")
        if law.oom_above and len(encodings) > law.oom_above:
            raise OutOfMemory(f"The simulated device has no memory for {len(encodings)} items.")
        seconds = (law.base_ms + law.item_ms * len(encodings)) / 1000
        if law.token_ms:
            seconds += law.token_ms * sum(one.n_tokens for one in encodings) / 1000
        if law.slow_on and any(law.slow_on in one.whole for one in encodings):
            seconds += law.slow_ms / 1000
        if law.host_ms:
            time.sleep(law.host_ms / 1000)
            with self._device:
                time.sleep(seconds)
        elif seconds > 0:
            time.sleep(seconds)
        if law.fail_on and any(law.fail_on in one.whole for one in encodings):
            raise ValueError(f"The simulated device fails on {law.fail_on!r}.")

    def _drawn(self, keys: Sequence[str]) -> Matrix:
        """A row for each key, drawn from its hash: numbers between -2^15 and 2^15, none of them 0."""
        n_bytes = 2 * self._dimension
        digests = b"".join(hashlib.shake_128(key.encode()).digest(n_bytes) for key in keys)
        return np.frombuffer(digests, dtype=np.int16).reshape(len(keys), -1).astype(np.float32) + np.float32(0.5)

    def _checked(self, rows: Matrix, encodings: Sequence[FakeEncoding]) -> Matrix:
        """The rows, those with NaN in them that the law wants so; raises NotFinite."""
        if self._law.nan_on:
            rows[[self._law.nan_on in one.whole for one in encodings]] = np.nan
        return require_finite(rows)

    def for_worker(self, index: int) -> "FakeVectorizer":
        """Each worker has a device of its own; with `host_ms`, every two have one."""
        number = index // 2 if self._law.host_ms else index
        if number == 0:
            return self
        if number not in self._others:
            self._others[number] = FakeVectorizer(
                self._law,
                name=self._name,
                max_batch_tokens=self._max_batch_tokens,
                max_batch_items=1,
            )
        return self._others[number]


def _words(text: str) -> list[Token]:
    return [Token(_id_of(m[0]), m[0], False, m.start(), m.end()) for m in re.finditer(r"\S+", text)]


def _id_of(word: str) -> int:
    """`#id` has that id; other words have one of those that are not special, by their hash."""
    if word[1:].isdecimal() and word[0] == "#" and int(word[1:]) < VOCABULARY_SIZE:
        return int(word[1:])
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return N_SPECIAL + int.from_bytes(digest, "little") % (VOCABULARY_SIZE - N_SPECIAL)


def _names(ids: Sequence[int], *, skip_special: bool) -> Iterator[str]:
    for one in ids:
        if not 0 <= one < VOCABULARY_SIZE:
            raise TokenizerFailed(f"holds the token id {one}; the model's vocabulary is 0 to {VOCABULARY_SIZE - 1}")
        if one >= N_SPECIAL:
            yield f"#{one}"
        elif not skip_special:
            yield (BEGIN, END)[one].text
