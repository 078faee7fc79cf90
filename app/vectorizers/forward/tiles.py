"""Where attention without a kernel for ragged rows puts the texts: in tiles of like length.

A softmax over 15 keys costs several times one over 16, since vector instructions come in sixteens and the rest is done
one by one; and a product of small matrices costs more to call than to compute. So short texts share a tile of
`SHARED` tokens, each looking at itself alone, and longer ones have a tile each, rounded up to the next `STEP`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.vectorizers.forward.row import Ints, Row

SHARED = 32
STEP = 16
LONGEST_ROUNDED = 512
"""Above this, rounding gains nothing: only texts of the same length share a group."""


ROUNDING = ((512, 16), (1024, 32), (4096, 64))
"""Rows of up to so many tokens are rounded up to a multiple of so many."""


class Group(NamedTuple):
    """Tiles of one length: the slots `first : first + tiles * length` of the plan.

    `shared`: a tile may hold several texts. `full`: no slot is left over, and no tile is shared.
    """

    first: int
    tiles: int
    length: int
    shared: bool
    full: bool


class Plan(NamedTuple):
    """Which token goes where.

    `token_of_slot` has shape (slots,): the token to read, any where none belongs; `slot_of_token` (tokens,) leads
    back, from anywhere for tokens that only fill the row. Both are None where the row itself is the one group, tile
    after tile. `text_of_slot` (slots,) names the text, -1 where there is none; it may be None where all is full.
    """

    groups: Sequence[Group]
    token_of_slot: Ints | None = None
    slot_of_token: Ints | None = None
    text_of_slot: Ints | None = None


def round_up(tokens: int) -> int:
    """How long to make a row: one of few lengths, which above 256 are at most 7% more than `tokens`.

    A CPU's kernels for matrix products in bfloat16 are made, in milliseconds, for each shape they meet, and kept.
    """
    step = next((step for most, step in ROUNDING if tokens <= most), 256)
    return -(-tokens // step) * step


def plan_tiles(row: Row) -> Plan:
    """Distribute the texts of a row over tiles."""
    lengths = row.lengths.tolist()
    alike, tile = lengths[0], _rounded(lengths[0])
    if (
        lengths == [alike] * len(lengths)
        and row.n_tokens == tile * len(lengths)
        and (alike == tile or len(lengths) == 1)
    ):
        text_of_slot = None if alike == tile else np.where(np.arange(tile) < alike, 0, -1)
        group = Group(0, len(lengths), tile, shared=False, full=alike == tile)
        return Plan([group], text_of_slot=text_of_slot)
    groups: list[Group] = []
    first_slots = np.empty(len(lengths), np.int64)
    end = 0
    for length, texts in sorted(_by_tile_length(lengths).items()):
        if length == SHARED:
            tiles = _share(lengths, texts, first_slots)
            groups.append(Group(end, tiles, length, shared=True, full=False))
        else:
            tiles = len(texts)
            first_slots[texts] = end + length * np.arange(tiles)
            full = all(lengths[i] == length for i in texts)
            groups.append(Group(end, tiles, length, shared=False, full=full))
        end += tiles * length
    real = int(row.starts[-1])
    slot_of_token = np.zeros(row.n_tokens, np.int64)
    slot_of_token[:real] = np.repeat(first_slots, row.lengths) + row.places[:real]
    token_of_slot = np.zeros(end, np.int64)
    token_of_slot[slot_of_token[:real]] = np.arange(real)
    text_of_slot = np.full(end, -1, np.int64)
    text_of_slot[slot_of_token[:real]] = np.repeat(np.arange(len(lengths)), row.lengths)
    return Plan(groups, token_of_slot, slot_of_token, text_of_slot)


def _rounded(length: int) -> int:
    return length if length > LONGEST_ROUNDED else -(-length // STEP) * STEP


def _by_tile_length(lengths: Sequence[int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for text, length in enumerate(lengths):
        groups.setdefault(SHARED if length <= SHARED else _rounded(length), []).append(text)
    return groups


def _share(lengths: Sequence[int], texts: Sequence[int], first_slots: Ints) -> int:
    """Fill tiles from slot 0 on, the longest texts first, each into the fullest tile that has room for it; returns how
    many tiles that took."""
    open_tiles: list[list[int]] = [[] for _ in range(SHARED + 1)]  # by the room left in them
    tiles = 0
    for text in sorted(texts, key=lambda i: -lengths[i]):
        length = lengths[text]
        room = next((room for room in range(length, SHARED + 1) if open_tiles[room]), None)
        if room is None:
            tile, room = tiles, SHARED
            tiles += 1
        else:
            tile = open_tiles[room].pop()
        first_slots[text] = tile * SHARED + SHARED - room
        open_tiles[room - length].append(tile)
    return tiles
