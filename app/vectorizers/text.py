"""TextVectorizer: the callable that owns a sentence-transformers model and its device."""

from collections.abc import Sequence

import numpy as np

from app.vectorizers.base import TINY, Matrix, require_finite
from app.vectorizers.choosing import choose_forward, load_finite
from app.vectorizers.dtypes import choose_dtype
from app.vectorizers.engine import Engine
from app.vectorizers.forward import Forward
from app.vectorizers.loading import LoadedModel
from app.vectorizers.sources import ModelSource
from app.vectorizers.tokenizer import TokenIds


class TextVectorizer(Engine):
    """Embeds texts as `SentenceTransformer.encode` does, in batches that fit the device."""

    kind = "embedding"

    def _load(self, source: ModelSource, dtype: str) -> tuple[LoadedModel, Forward]:
        chosen = choose_dtype(dtype, self._device, source)
        loaded, expected = load_finite(
            lambda one: LoadedModel(source, self._device, one), chosen, may_widen=dtype == "auto"
        )
        self._ends_normalized = loaded.ends_normalized
        return loaded, choose_forward(loaded, expected)

    def __call__(self, inputs: Sequence[str] | Sequence[TokenIds], *, normalize: bool | None = None) -> Matrix:
        """Vectors, float32 of shape (n, dimension). More than the token budget runs in parts, each within it or one
        text."""
        rows = self._rows(inputs)
        if normalize if normalize is not None else self._ends_normalized:
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), TINY)
        return require_finite(rows)

    def token_vectors(self, encodings: Sequence[TokenIds]) -> list[Matrix]:
        """Last hidden states, for each encoding float32 of shape (n_tokens, width), in parts as a call's."""
        if not encodings:
            return []
        found = self._run(self._forward.token_vectors, encodings)
        return [require_finite(rows) for part in found for rows in part]
