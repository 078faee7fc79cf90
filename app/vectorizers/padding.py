"""Padded batches that waste little: texts of like length share a forward."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def length_buckets(lengths: Sequence[int], max_tokens: int, forward_cost_tokens: float) -> list[list[int]]:
    """Split texts into forwards, longest first; returns the positions of each forward's texts.

    A forward is padded to its longest text, and holds at most `max_tokens` with padding, or one text. A new one is
    begun when padding the next text would waste more, together with what is wasted already, than a forward of its
    own costs: `forward_cost_tokens` is the fixed cost of a forward in units of one token's cost.
    """
    buckets: list[list[int]] = []
    longest = wasted = 0
    for position in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        waste = longest - lengths[position]
        full = not buckets or (len(buckets[-1]) + 1) * longest > max_tokens
        if full or wasted + waste > forward_cost_tokens:
            buckets.append([])
            longest, wasted, waste = lengths[position], 0, 0
        buckets[-1].append(position)
        wasted += waste
    return buckets


def pad(
    rows: Sequence[Sequence[int]], pad_id: int, *, left: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]:
    """Token ids as a matrix (n, longest), and the mask that is 1 at real tokens: None where nothing is padded."""
    longest = max(map(len, rows))
    if all(len(row) == longest for row in rows):
        return np.array(rows, dtype=np.int64), None
    ids = np.full((len(rows), longest), pad_id, dtype=np.int64)
    mask = np.zeros((len(rows), longest), dtype=np.int64)
    for i, row in enumerate(rows):
        place = slice(longest - len(row), longest) if left else slice(0, len(row))
        ids[i, place] = row
        mask[i, place] = 1
    return ids, mask
