"""Recent vectors, kept within a bound of bytes."""

import sys
from typing import NamedTuple

from cachetools import LRUCache

from app.vectorizers.base import Matrix, TextInput

BYTES_PER_MB = 1_000_000
ENTRY_BYTES = 500
"""What an entry takes besides the characters of its text and the numbers of its vector: the objects around them."""


class CachedVector(NamedTuple):
    """A vector, float32 of shape (dimension,), whether its text was cut, how many tokens of it the model read,
    and what the entry takes in memory."""

    vector: Matrix
    truncated: bool
    tokens: int
    n_bytes: int


class VectorCache:
    """Maps an input with all its options to its vector; the least recently used make room. Belongs to one model."""

    def __init__(self, megabytes: float) -> None:
        self._vectors: LRUCache[TextInput, CachedVector] = LRUCache(
            int(megabytes * BYTES_PER_MB), getsizeof=lambda entry: entry.n_bytes
        )

    @property
    def n_bytes(self) -> int:
        """What all entries take."""
        return int(self._vectors.currsize)

    def get(self, one: TextInput) -> CachedVector | None:
        """The vector of this very input; None where it is not kept, or is a list of token ids."""
        return self._vectors.get(one) if isinstance(one.content, str) else None

    def put(self, one: TextInput, vector: Matrix, *, truncated: bool, tokens: int) -> None:
        """Keep a copy of this vector, where it fits at all."""
        if not isinstance(one.content, str):
            return
        entry = CachedVector(vector.copy(), truncated, tokens, sys.getsizeof(one.content) + vector.nbytes + ENTRY_BYTES)
        if entry.n_bytes <= self._vectors.maxsize:
            self._vectors[one] = entry
