"""The packed forward: all texts of a batch in one row, without padding."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor

from app.vectorizers.base import Matrix
from app.vectorizers.forward.attention import Layout, TiledLayout
from app.vectorizers.forward.encoder import encoder_of
from app.vectorizers.forward.families import pad_position
from app.vectorizers.forward.pooling import POOLS
from app.vectorizers.forward.row import Row, pack
from app.vectorizers.forward.tiles import plan_tiles, round_up
from app.vectorizers.tokenizer import TokenIds


class PackedModel:
    """A sentence-transformers model that reads a packed row; the original is of no use afterwards."""

    def __init__(self, model: SentenceTransformer) -> None:
        """`model` must be one that `families.check_can_pack` lets pass."""
        transformer: Any = model[0].auto_model
        pooling: Any = model[1]
        self._pad_position = pad_position(transformer.config)
        self._encode = encoder_of(transformer)
        self._pool = POOLS[pooling.pooling_mode]
        after = list(model)[2:]
        if after and isinstance(after[-1], Normalize):
            after.pop()
        self._after = [module.float() for module in after]

    def pack(self, texts: Sequence[TokenIds], round_up: Callable[[int], int] = int) -> Row:
        """The texts in one row, with positions as this model counts them."""
        return pack([text.ids for text in texts], round_up, pad_position=self._pad_position)

    def __call__(self, ids: Tensor, positions: Tensor, starts: Tensor, layout: Layout) -> Tensor:
        """Vectors, not normalised, float32 of shape (n, dimension), of the n texts whose tokens `ids` (T,) lie between
        `starts` (n + 1,)."""
        features = {"sentence_embedding": self._pool(self._encode(ids, positions, layout), starts)}
        for module in self._after:
            features = module(features)
        return features["sentence_embedding"]


class PackedForward:
    """Runs a packed model on a CPU, from any number of threads at a time."""

    name = "packed"

    def __init__(self, model: PackedModel) -> None:
        self._model = model

    def __call__(self, texts: Sequence[TokenIds]) -> Matrix:
        """Vectors, not normalised, float32 of shape (n, dimension)."""
        row = self._model.pack(texts, round_up)
        plan = plan_tiles(row)
        layout = TiledLayout(plan.groups, *[None if part is None else torch.from_numpy(part) for part in plan[1:]])
        ids, positions, starts = (torch.from_numpy(part) for part in (row.ids, row.positions, row.starts))
        rows: Matrix = self._model(ids, positions, starts, layout).numpy()
        return rows
