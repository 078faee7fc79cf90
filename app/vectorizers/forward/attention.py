"""Attention within each text of a packed row, as an attention function of transformers'.

A function registered with `AttentionInterface` and without a mask function of its own gets whatever the caller of the
model passes by keyword, and no mask is built: here it is a `layout`, which knows where each text lies.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F  # noqa: N812  # its customary name
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from app.vectorizers.forward.tiles import Group

NAME = "convoy_packed"
"""The attention's name with transformers."""


class Rule(NamedTuple):
    """What a token may look at in its own text: everything, or nothing after it (`causal`), and within `window` tokens
    to either side, itself counted; scores are scaled by `scale`."""

    causal: bool
    window: int | None
    scale: float | None


class Layout(Protocol):
    """Where the texts of a row lie on the device."""

    def attend(self, parts: Sequence[Tensor], rule: Rule) -> Tensor:
        """`parts` is queries, keys and values, each of shape (tokens, heads, head_dim), or all three in one, along the
        heads; returns (tokens, heads, head_dim)."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    *,
    layout: Layout,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Shapes as transformers has them: (1, heads, tokens, head_dim) in, (1, tokens, heads, head_dim) out."""
    causal = bool(getattr(module, "is_causal", False)) and getattr(module.config, "is_causal", True) is not False
    rows = [part[0].transpose(0, 1) for part in (query, key, value)]
    return layout.attend(rows, Rule(causal, sliding_window, scaling)).unsqueeze(0), None


AttentionInterface.register(NAME, packed_attention)


class RaggedLayout:
    """Texts one after another, for the kernel that takes their boundaries: CUDA, float16 and bfloat16."""

    def __init__(self, starts: Tensor, longest: int) -> None:
        """`starts` is int32 on the device, of shape (n + 1,); `longest` is at least the longest text's length."""
        self._starts = starts
        self._longest = longest

    def attend(self, parts: Sequence[Tensor], rule: Rule) -> Tensor:
        query, key, value = parts if len(parts) == 3 else parts[0].chunk(3, dim=1)
        beside = -1 if rule.window is None else rule.window - 1
        attended = varlen_attn(
            query,
            key,
            value,
            self._starts,
            self._starts,
            self._longest,
            self._longest,
            scale=rule.scale,
            window_size=(beside, 0 if rule.causal else beside),
            enable_gqa=query.shape[1] != key.shape[1],
        )
        assert isinstance(attended, Tensor)
        return attended


class TiledLayout:
    """Texts in tiles, for the attention that every device and number type has."""

    def __init__(
        self,
        groups: Sequence[Group],
        token_of_slot: Tensor | None = None,
        slot_of_token: Tensor | None = None,
        text_of_slot: Tensor | None = None,
    ) -> None:
        """The parts of a `tiles.Plan`, on the device."""
        self._groups = groups
        self._token_of_slot = token_of_slot
        self._slot_of_token = slot_of_token
        self._text_of_slot = text_of_slot
        self._masks: dict[tuple[Group, bool, int | None], Tensor] = {}

    def attend(self, parts: Sequence[Tensor], rule: Rule) -> Tensor:
        if self._token_of_slot is not None:
            parts = [part.flatten(1).index_select(0, self._token_of_slot).view(-1, *part.shape[1:]) for part in parts]
        query, key, value = parts if len(parts) == 3 else parts[0].chunk(3, dim=1)
        attended = [self._attend(group, query, key, value, rule) for group in self._groups]
        slots = attended[0] if len(attended) == 1 else torch.cat(attended)
        if self._slot_of_token is None:
            return slots
        return slots.flatten(1).index_select(0, self._slot_of_token).view(-1, *query.shape[1:])

    def _attend(self, group: Group, query: Tensor, key: Tensor, value: Tensor, rule: Rule) -> Tensor:
        first, last = group.first, group.first + group.tiles * group.length
        queries, keys, values = (
            part[first:last].view(group.tiles, group.length, *part.shape[1:]).transpose(1, 2)
            for part in (query, key, value)
        )
        mask = self._mask(group, rule, query)
        attended = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=mask,
            is_causal=rule.causal and mask is None,
            scale=rule.scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return attended.transpose(1, 2).reshape(last - first, *query.shape[1:])

    def _mask(self, group: Group, rule: Rule, like: Tensor) -> Tensor | None:
        """What is added to the scores, (tiles or 1, 1, length or 1, length), or None where nothing need be hidden.

        What is left over of a tile lies at its end, so that looking back alone never meets it.
        """
        window = rule.window if rule.window is not None and rule.window < group.length else None
        if not group.shared and window is None and (group.full or rule.causal):
            return None
        wanted = group, rule.causal, window
        if wanted not in self._masks:
            self._masks[wanted] = self._hidden(group, rule.causal, window, like)
        return self._masks[wanted]

    def _hidden(self, group: Group, causal: bool, window: int | None, like: Tensor) -> Tensor:
        place = torch.arange(group.length, device=like.device)
        distance = place[:, None] - place[None, :]
        hidden = torch.zeros(1, group.length, group.length, dtype=torch.bool, device=like.device)
        if causal and (group.shared or window is not None):
            hidden = hidden | (distance < 0)
        if window is not None:
            hidden = hidden | (distance.abs() >= window)
        if not group.full:
            assert self._text_of_slot is not None
            text = self._text_of_slot[group.first : group.first + group.tiles * group.length]
            text = text.view(group.tiles, group.length)
            if group.shared:
                hidden = hidden | (text[:, :, None] != text[:, None, :])
            else:
                hidden = hidden | (text < 0)[:, None, :]
        mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
        return mask.masked_fill_(hidden, float("-inf")).unsqueeze(1)
