"""Padded batches."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.vectorizers.forward.padded import length_buckets, pad


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 2000), st.floats(0, 500))
def test_every_text_is_in_one_forward_and_none_exceeds_the_budget(
    lengths: list[int], max_tokens: int, cost: float
) -> None:
    buckets = length_buckets(lengths, max_tokens, cost)
    assert sorted(position for bucket in buckets for position in bucket) == list(range(len(lengths)))
    for bucket in buckets:
        longest = max(lengths[i] for i in bucket)
        assert len(bucket) == 1 or len(bucket) * longest <= max_tokens
        assert sum(longest - lengths[i] for i in bucket) <= cost


def test_one_long_text_does_not_make_short_ones_long() -> None:
    assert length_buckets([10, 250, 10, 10], 10_000, 50) == [[1], [0, 2, 3]]


def test_like_lengths_share_a_forward() -> None:
    assert length_buckets([10, 12, 11, 12], 10_000, 50) == [[1, 3, 2, 0]]


def test_padding_on_either_side_with_a_mask_over_real_tokens() -> None:
    ids, mask = pad([[1, 2, 3], [4]], 9, left=False)
    assert ids.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert mask is not None
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    ids, mask = pad([[1, 2, 3], [4]], 9, left=True)
    assert ids.tolist() == [[1, 2, 3], [9, 9, 4]]
    assert mask is not None
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]


def test_equal_lengths_need_no_mask() -> None:
    ids, mask = pad([[1, 2], [3, 4]], 0, left=False)
    assert mask is None
    assert ids.dtype == np.int64
