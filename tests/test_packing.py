"""Rows, tiles, and attention over them: every text must look at itself alone, wherever it lies."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # its customary name
from hypothesis import given, settings
from hypothesis import strategies as st

from app.vectorizers.forward import attention
from app.vectorizers.forward.attention import RaggedLayout, Rule, TiledLayout
from app.vectorizers.forward.row import Row, pack
from app.vectorizers.forward.tiles import SHARED, Plan, plan_tiles, round_up

HEADS, DIM = 2, 8
lengths_of_texts = st.lists(st.integers(1, 80) | st.integers(500, 530), min_size=1, max_size=12)


def row_of(lengths: list[int], *, rounded: bool = True) -> Row:
    texts = [[100 * i + place for place in range(length)] for i, length in enumerate(lengths)]
    return pack(texts, round_up if rounded else int)


def layout_of(plan: Plan) -> TiledLayout:
    return TiledLayout(plan.groups, *[None if part is None else torch.from_numpy(part) for part in plan[1:]])


def reference(row: Row, parts: list[torch.Tensor], rule: Rule) -> torch.Tensor:
    """Attention text by text, written down as it is defined, in float64."""
    rows = []
    for start, end in zip(row.starts[:-1].tolist(), row.starts[1:].tolist(), strict=True):
        query, key, value = (part[start:end].double().transpose(0, 1) for part in parts)
        key, value = (part.repeat_interleave(query.shape[0] // part.shape[0], dim=0) for part in (key, value))
        scores = query @ key.transpose(1, 2) * (rule.scale or DIM**-0.5)
        distance = torch.arange(end - start)[:, None] - torch.arange(end - start)[None, :]
        hidden = torch.zeros_like(distance, dtype=torch.bool)
        if rule.causal:
            hidden |= distance < 0
        if rule.window is not None:
            hidden |= distance.abs() >= rule.window
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        rows.append((weights @ value).transpose(0, 1))
    return torch.cat(rows)


def random_parts(row: Row, key_heads: int = HEADS) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(row.n_tokens, heads, DIM, generator=generator) for heads in (HEADS, key_heads, key_heads)]


@given(lengths_of_texts)
def test_a_row_holds_every_text_and_its_places(lengths: list[int]) -> None:
    row = row_of(lengths)
    assert row.lengths.tolist() == lengths
    assert row.n_tokens >= sum(lengths)
    for i, (start, end) in enumerate(zip(row.starts[:-1], row.starts[1:], strict=True)):
        assert row.ids[start:end].tolist() == [100 * i + place for place in range(lengths[i])]
        assert row.places[start:end].tolist() == list(range(lengths[i]))


def test_rows_have_few_lengths_and_little_of_them_is_wasted() -> None:
    rounded = [round_up(tokens) for tokens in range(1, 4097)]
    assert all(up >= tokens for tokens, up in enumerate(rounded, 1))
    assert len(set(rounded)) < 100
    assert max(up / tokens for tokens, up in enumerate(rounded, 1) if tokens > 256) < 1.07


@settings(deadline=None)
@given(lengths_of_texts, st.booleans())
def test_tiles_hold_each_token_once_and_a_text_lies_in_one_tile(lengths: list[int], rounded: bool) -> None:
    row = row_of(lengths, rounded=rounded)
    plan = plan_tiles(row)
    if plan.slot_of_token is None:
        assert len(plan.groups) == 1
        return
    assert plan.token_of_slot is not None
    assert plan.text_of_slot is not None
    slots = plan.slot_of_token[: sum(lengths)]
    assert len(set(slots.tolist())) == sum(lengths)
    np.testing.assert_array_equal(plan.token_of_slot[slots], np.arange(sum(lengths)))
    np.testing.assert_array_equal(plan.text_of_slot[slots], np.repeat(np.arange(len(lengths)), lengths))
    assert np.count_nonzero(plan.text_of_slot >= 0) == sum(lengths)
    ends = [group.first + group.tiles * group.length for group in plan.groups]
    assert ends[-1] == len(plan.token_of_slot)
    for group, end in zip(plan.groups, ends, strict=True):
        tiles = plan.text_of_slot[group.first : end].reshape(group.tiles, group.length)
        texts = [set(tile.tolist()) - {-1} for tile in tiles]
        assert sum(map(len, texts)) == len(set.union(*texts)), "a text lies in two tiles"
        assert group.shared or all(len(one) == 1 for one in texts)
        assert group.full == (not group.shared and bool((tiles >= 0).all()))


def test_short_texts_share_tiles_closely() -> None:
    lengths = np.random.default_rng(0).integers(5, 28, 64).tolist()
    (group,) = plan_tiles(row_of(lengths)).groups
    assert group.length == SHARED
    assert sum(lengths) > 0.85 * group.tiles * group.length


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=10) | st.lists(st.integers(500, 520), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([None, 3, 20, 100]),
    st.sampled_from([None, 0.3]),
    st.sampled_from(["apart", "together", "grouped"]),
    st.booleans(),
)
def test_tiled_attention_is_attention_text_by_text(
    lengths: list[int], causal: bool, window: int | None, scale: float | None, heads: str, rounded: bool
) -> None:
    row = row_of(lengths, rounded=rounded)
    rule = Rule(causal, window, scale)
    parts = random_parts(row, key_heads=1 if heads == "grouped" else HEADS)
    given_parts = [torch.cat(parts, dim=1)] if heads == "together" else parts
    layout = layout_of(plan_tiles(row))
    for _ in range(2):  # the second layer finds its mask made
        found = layout.attend(given_parts, rule)
        assert found.shape == (row.n_tokens, HEADS, DIM)
        real = sum(lengths)
        torch.testing.assert_close(found[:real].double(), reference(row, parts, rule)[:real], atol=1e-5, rtol=1e-4)


def test_the_kernel_for_ragged_rows_is_told_boundaries_windows_and_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel itself needs a card; here one that is written down as defined stands in for it."""
    row = row_of([3, 9, 1], rounded=False)
    calls = []

    def kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: torch.Tensor, *rest: object, **options: object) -> torch.Tensor:  # fmt: skip # noqa: E501
        calls.append((starts.tolist(), rest[1:], options))
        return F.scaled_dot_product_attention(q, q, q)

    monkeypatch.setattr(attention, "varlen_attn", kernel)
    layout = RaggedLayout(torch.from_numpy(row.starts), longest=9)
    layout.attend(random_parts(row), Rule(causal=False, window=None, scale=None))
    layout.attend(random_parts(row, key_heads=1), Rule(causal=True, window=5, scale=0.5))
    layout.attend([torch.cat(random_parts(row), dim=1)], Rule(causal=True, window=None, scale=None))
    assert [starts for starts, *_ in calls] == [[0, 3, 12, 13]] * 3
    assert all(rest == (9, 9) for _, rest, _ in calls)
    assert [options for *_, options in calls] == [
        {"scale": None, "window_size": (-1, -1), "enable_gqa": False},
        {"scale": 0.5, "window_size": (4, 0), "enable_gqa": True},
        {"scale": None, "window_size": (-1, 0), "enable_gqa": False},
    ]
