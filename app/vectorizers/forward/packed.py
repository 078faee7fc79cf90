"""The packed forward: all texts of a batch in one row, without padding."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor

from app.vectorizers.base import Matrix
from app.vectorizers.forward.attention import Layout, TiledLayout
from app.vectorizers.forward.encoder import encoder_of
from app.vectorizers.forward.families import pad_position
from app.vectorizers.forward.heads import head_of
from app.vectorizers.forward.pooling import POOLS
from app.vectorizers.forward.row import Row, add_types, pack
from app.vectorizers.forward.tiles import plan_tiles, round_up
from app.vectorizers.tokenizer import TokenIds


class Packed(Protocol):
    """A model that reads a packed row."""

    def pack(self, texts: Sequence[TokenIds], round_up: Callable[[int], int] = int) -> Row:
        """The texts in one row, with positions as this model counts them."""

    def states(self, ids: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        """Each token's last hidden state, (T, width), in the model's number type."""

    def __call__(self, ids: Tensor, positions: Tensor, starts: Tensor, layout: Layout) -> Tensor:
        """Rows, not normalised, float32 of shape (n, dimension), of the n texts whose tokens `ids` (T,) lie between
        `starts` (n + 1,)."""


class PackedEncoder:
    """A model of transformers' without its head; the original is of no use afterwards."""

    def __init__(self, transformer: Any, *, typed: bool = False) -> None:
        """`typed`: texts may tell their tokens' types."""
        self._pad_position = pad_position(transformer.config)
        self._encoder = encoder_of(transformer, typed=typed)

    def pack(self, texts: Sequence[TokenIds], round_up: Callable[[int], int] = int) -> Row:
        """The texts in one row, with positions as this model counts them; they tell token types too."""
        row = pack([text.ids for text in texts], round_up, pad_position=self._pad_position)
        stride = self._encoder.type_stride
        return add_types(row, [text.types for text in texts], stride) if stride else row

    def states(self, ids: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        """Each token's last hidden state, (T, width), in the model's number type."""
        return self._encoder(ids, positions, layout)


class PackedModel(PackedEncoder):
    """A sentence-transformers model that reads a packed row; the original is of no use afterwards."""

    def __init__(self, model: SentenceTransformer) -> None:
        """`model` must be one that `families.check_can_pack` lets pass."""
        transformer: Any = model[0].auto_model
        pooling: Any = model[1]
        super().__init__(transformer)
        self._pool = POOLS[pooling.pooling_mode]
        after = list(model)[2:]
        if after and isinstance(after[-1], Normalize):
            after.pop()
        self._after = [module.float() for module in after]

    def __call__(self, ids: Tensor, positions: Tensor, starts: Tensor, layout: Layout) -> Tensor:
        """Vectors, not normalised, float32 of shape (n, dimension), of the n texts whose tokens `ids` (T,) lie between
        `starts` (n + 1,)."""
        features = {"sentence_embedding": self._pool(self.states(ids, positions, layout), starts)}
        for module in self._after:
            features = module(features)
        return features["sentence_embedding"]


class PackedClassifier(PackedEncoder):
    """A cross-encoder that reads a packed row; the original is of no use afterwards."""

    def __init__(self, model: CrossEncoder) -> None:
        """`model` must be one that `families.check_can_pack_classifier` lets pass."""
        whole: Any = model.model
        self._head = head_of(whole)
        super().__init__(whole.base_model, typed=True)

    def __call__(self, ids: Tensor, positions: Tensor, starts: Tensor, layout: Layout) -> Tensor:
        """Logits, float32 of shape (n, labels), of the texts whose tokens `ids` (T,) lie between `starts` (n + 1,)."""
        return self._head(self.states(ids, positions, layout), starts)


class PackedForward:
    """Runs a packed model on a CPU, from any number of threads at a time."""

    name = "packed"

    def __init__(self, model: Packed) -> None:
        self._model = model

    def __call__(self, texts: Sequence[TokenIds]) -> Matrix:
        """Rows, not normalised, float32 of shape (n, dimension)."""
        row, layout = self._lay_out(texts)
        ids, positions, starts = (torch.from_numpy(part) for part in (row.ids, row.positions, row.starts))
        rows: Matrix = self._model(ids, positions, starts, layout).numpy()
        return rows

    def computed_tokens(self, sizes: Sequence[int]) -> int:
        """What the row is rounded up to; tiles, which only attention sees, are not counted."""
        return round_up(sum(sizes))

    def token_vectors(self, texts: Sequence[TokenIds]) -> list[Matrix]:
        """Last hidden states, for each text float32 of shape (n_tokens, width)."""
        row, layout = self._lay_out(texts)
        states = self._model.states(torch.from_numpy(row.ids), torch.from_numpy(row.positions), layout)
        return split(states.float().numpy(), row)

    def _lay_out(self, texts: Sequence[TokenIds]) -> tuple[Row, TiledLayout]:
        row = self._model.pack(texts, round_up)
        plan = plan_tiles(row)
        return row, TiledLayout(plan.groups, *[None if part is None else torch.from_numpy(part) for part in plan[1:]])


def split(states: Matrix, row: Row) -> list[Matrix]:
    """The rows of each text, from those of all tokens of a row (T, width)."""
    return np.split(states, row.starts[1:])[:-1]  # the last part is what only fills the row
