"""A batch as one row: all its texts one after another, with each token's position in its own text."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Row(NamedTuple):
    """n texts, in the order of the batch, and some tokens that belong to none.

    `ids`, `places` and `positions` have shape (T,): `places` counts from 0 in each text, `positions` as the model does.
    `lengths` has shape (n,) and `starts` (n + 1,): text i lies at `starts[i] : starts[i + 1]`, and what follows
    `starts[n]` only fills the row.
    """

    ids: Ints
    places: Ints
    positions: Ints
    lengths: Ints
    starts: Ints

    @property
    def n_tokens(self) -> int:
        """T: all tokens, those that only fill the row included."""
        return len(self.ids)


def pack(
    texts: Sequence[Sequence[int]], round_up: Callable[[int], int] = int, *, pad_position: int | None = None
) -> Row:
    """Put the token ids of texts, none of them empty, into one row; `round_up` says how long it is to be.

    Positions count from 0; where `pad_position` is given they are RoBERTa's: from `pad_position + 1` on, and tokens
    with that id, wherever in a text, are not counted and have that position themselves.
    """
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    starts = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    real = int(starts[-1])
    total = round_up(real)
    ids = np.zeros(total, np.int64)
    ids[:real] = np.fromiter(chain.from_iterable(texts), np.int64, real)
    places = np.zeros(total, np.int64)
    places[:real] = np.arange(real) - np.repeat(starts[:-1], lengths)
    positions = places if pad_position is None else _positions_like_roberta(ids, starts, lengths, pad_position)
    return Row(ids, places, positions, lengths, starts)


def _positions_like_roberta(ids: Ints, starts: Ints, lengths: Ints, pad: int) -> Ints:
    real = int(starts[-1])
    counted = ids[:real] != pad
    before = np.zeros(real + 1, np.int64)
    np.cumsum(counted, out=before[1:])
    within = before[1:] - np.repeat(before[starts[:-1]], lengths)
    positions = np.full(len(ids), pad, np.int64)
    positions[:real] += within * counted
    return positions


def add_types(row: Row, types: Sequence[Sequence[int] | None], stride: int) -> Row:
    """The row with `stride` times its type added to each token's position, so that one number tells both.

    `types` holds one list for each text, of a type for each of its tokens, or None for all 0.
    """
    if not any(types):
        return row
    positions = row.positions.copy()
    for start, one in zip(row.starts[:-1].tolist(), types, strict=True):
        if one:
            positions[start : start + len(one)] += stride * np.array(one, np.int64)
    return row._replace(positions=positions)
