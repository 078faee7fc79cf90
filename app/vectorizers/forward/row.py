"""A batch as one row: all its texts one after another, with each token's position in its own text."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Row(NamedTuple):
    """n texts, in the order of the batch, and some tokens that belong to none.

    `ids` and `places` have shape (T,), `places` counting from 0 in each text; `lengths` has shape (n,) and `starts`
    (n + 1,): text i lies at `starts[i] : starts[i + 1]`, and what follows `starts[n]` only fills the row.
    """

    ids: Ints
    places: Ints
    lengths: Ints
    starts: Ints

    @property
    def n_tokens(self) -> int:
        """T: all tokens, those that only fill the row included."""
        return len(self.ids)


def pack(texts: Sequence[Sequence[int]], round_up: Callable[[int], int] = int) -> Row:
    """Put the token ids of texts, none of them empty, into one row; `round_up` says how long it is to be."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    starts = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    real = int(starts[-1])
    total = round_up(real)
    ids = np.zeros(total, np.int64)
    ids[:real] = np.fromiter(chain.from_iterable(texts), np.int64, real)
    places = np.zeros(total, np.int64)
    places[:real] = np.arange(real) - np.repeat(starts[:-1], lengths)
    return Row(ids, places, lengths, starts)
