"""What can be known of the CUDA path without a card: staging, the shapes of recorded forwards, what they compute."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from app.vectorizers.forward import graphs
from app.vectorizers.forward.attention import Rule, TiledLayout
from app.vectorizers.forward.graphs import RUNGS, fill, ragged, room_for_texts, rung_for
from app.vectorizers.forward.packed import PackedForward, PackedModel
from app.vectorizers.forward.row import Row, pack
from app.vectorizers.forward.staging import Slot, lay_out, read
from app.vectorizers.forward.tiles import plan_tiles
from app.vectorizers.sources import find_model
from app.vectorizers.tokenizer import TokenIds


def test_arrays_travel_in_one_piece_of_memory_and_come_out_as_they_were() -> None:
    slot = Slot(pinned=False)
    for size in (3, 1000, 5):  # it grows, and serves smaller ones afterwards
        arrays: list[np.ndarray[Any, Any]] = [
            np.arange(size),
            np.arange(size + 1, dtype=np.int32),
            np.arange(6, dtype=np.int64).reshape(2, 3),
        ]
        parts, memory = slot.stage(arrays)
        assert memory.is_contiguous()
        for array, tensor in zip(arrays, read(parts, memory.clone()), strict=True):
            assert tensor.dtype == (torch.int32 if array.dtype == np.int32 else torch.int64)
            np.testing.assert_array_equal(tensor.numpy(), array)


def test_parts_are_aligned_and_do_not_overlap() -> None:
    parts = lay_out([np.zeros(3, np.int32), np.zeros(5), np.zeros((2, 7), np.int64)])
    assert all(part.offset % 16 == 0 for part in parts)
    assert all(before.end <= after.offset for before, after in pairwise(parts))


def test_vectors_come_back_through_the_slot() -> None:
    slot = Slot(pinned=False)
    vectors = torch.randn(5, 7)
    assert torch.equal(slot.receive(vectors), vectors)


@pytest.mark.parametrize(
    ("lengths", "rung"),
    [([1], 32), ([32], 32), ([33], 64), ([3] * 10, 32), ([2] * 11, 64), ([1000, 1000], 2048), ([2049], None)],
)
def test_a_batch_takes_the_smallest_recorded_forward_that_holds_it(lengths: list[int], rung: int | None) -> None:
    assert rung_for(sum(lengths), len(lengths), RUNGS) == rung


def test_without_recorded_forwards_there_is_none_to_take() -> None:
    assert rung_for(2, 1, ()) is None


@pytest.mark.parametrize("rung", RUNGS)
def test_the_rows_that_recordings_are_checked_with_are_ragged_and_fit(rung: int) -> None:
    assert max(ragged(rung, 20).lengths) <= 20, "no text is longer than the model reads"
    row = ragged(rung, 512)
    assert rung_for(row.n_tokens, len(row.lengths), [rung]) == rung
    assert len(set(row.lengths.tolist())) == len(row.lengths) > 1
    assert rung / 2 < row.n_tokens < rung


class BoundaryLayout:
    """Stands in for the kernel that takes boundaries, empty texts and all."""

    def __init__(self, starts: torch.Tensor) -> None:
        lengths = (starts[1:] - starts[:-1]).numpy()
        row = pack([[0] * length for length in lengths if length])
        plan = plan_tiles(row)
        self._tiles = TiledLayout(plan.groups, *[None if p is None else torch.from_numpy(p) for p in plan[1:]])

    def attend(self, parts: Sequence[torch.Tensor], rule: Rule) -> torch.Tensor:
        return self._tiles.attend(parts, rule)


@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken"])
def test_a_row_in_the_shapes_of_a_recorded_forward_has_the_same_vectors(pooling: str) -> None:
    model = SentenceTransformer(find_model("bundled", None).location, device="cpu", local_files_only=True)
    pooling_module: Any = model[1]
    pooling_module.pooling_mode = pooling
    packed = PackedModel(model)
    texts = [[101, *range(2000, 2000 + length), 102] for length in (1, 11, 3, 30, 2, 62)]
    with torch.inference_mode():
        expected = PackedForward(packed)([TokenIds(text) for text in texts])
        for rung in (128, 192, 1024):
            ids, places, starts = (torch.from_numpy(array) for array in fill(pack(texts), rung))
            assert len(starts) == room_for_texts(rung) + 2
            vectors = packed(ids, places, starts, BoundaryLayout(starts))[: len(texts)]
            np.testing.assert_allclose(vectors.numpy(), expected, atol=2e-5)


def test_a_recording_that_computes_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(rung: int, *_: object) -> None:
        raise graphs.RecordingFailed(f"the recorded forward of {rung} tokens is off")

    monkeypatch.setattr(graphs, "Recorded", wrong)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    ladder = graphs.Ladder(lambda *_: torch.zeros(1), torch.device("cpu"), most_tokens=256, longest_text=512)
    assert ladder.rungs == []
    assert ladder.find(pack([[1, 2, 3]])) is None


def test_the_ladder_goes_as_far_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(graphs, "Recorded", lambda rung, *_: made.append(rung))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    ladder = graphs.Ladder(lambda *_: torch.zeros(1), torch.device("cpu"), most_tokens=256, longest_text=512)
    assert ladder.rungs == [32, 64, 96, 128, 192, 256]
    assert made == sorted(ladder.rungs, reverse=True), "the largest first, so that the others fit its memory"
    row: Row = pack([[1, 2, 3]])
    found = ladder.find(row)
    assert found is not None
    assert [array.shape for array in found[0]] == [(32,), (32,), (12,)]
