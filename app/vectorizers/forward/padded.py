"""The padded forward, for what cannot be packed: sentence-transformers' own modules over texts of like length."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import nn

from app.vectorizers.base import Matrix
from app.vectorizers.tokenizer import TextTokenizer, TokenIds

LEAST_FORWARD_COST_TOKENS = 32
"""No forward is so cheap that padding this little is worth another; a measurement that says so was disturbed."""


class PaddedForward:
    """Runs a sentence-transformers model bucket by bucket, each padded to its longest text.

    `max_tokens` bounds the tokens of one bucket, padding included, unless a single text exceeds it;
    `forward_cost_tokens` is the fixed cost of a forward in units of one token's cost.
    """

    name = "padded, sorted by length"

    def __init__(self, model: SentenceTransformer, tokenizer: TextTokenizer, *, max_tokens: int) -> None:
        modules = list(model)
        self._modules = nn.Sequential(*(modules[:-1] if isinstance(modules[-1], Normalize) else modules)).eval()
        self._device = model.device
        self._pad_id = tokenizer.pad_id
        self._pad_left = tokenizer.pad_left
        self.max_tokens = max_tokens
        self.forward_cost_tokens: float = LEAST_FORWARD_COST_TOKENS

    def fit(self, max_tokens: int, forward_cost_tokens: float) -> None:
        """Take over what the warm-up has measured."""
        self.max_tokens = max_tokens
        self.forward_cost_tokens = max(LEAST_FORWARD_COST_TOKENS, forward_cost_tokens)

    def __call__(self, texts: Sequence[TokenIds]) -> Matrix:
        """Vectors, not normalised, float32 of shape (n, dimension); read from the device once, at the end."""
        buckets = self._buckets(texts)
        vectors = torch.cat([self._run([texts[i] for i in bucket]) for bucket in buckets]).cpu().numpy()
        rows: Matrix = np.empty_like(vectors)
        rows[np.concatenate(buckets)] = vectors
        return rows

    def _run(self, texts: Sequence[TokenIds]) -> torch.Tensor:
        ids, mask = pad([text.ids for text in texts], self._pad_id, left=self._pad_left)
        features: dict[str, Any] = {"input_ids": torch.from_numpy(ids).to(self._device)}
        if mask is not None:
            features["attention_mask"] = torch.from_numpy(mask).to(self._device)
        if prompt_tokens := texts[0].prompt_tokens:
            features["prompt_length"] = prompt_tokens
        vectors: torch.Tensor = self._modules(features)["sentence_embedding"]
        return vectors.float()

    def _buckets(self, texts: Sequence[TokenIds]) -> list[list[int]]:
        """Positions of the texts of each forward: of like length, and of one prompt length."""
        groups: dict[int, list[int]] = {}
        for position, text in enumerate(texts):
            groups.setdefault(text.prompt_tokens, []).append(position)
        return [
            [group[i] for i in bucket]
            for group in groups.values()
            for bucket in length_buckets([texts[i].n_tokens for i in group], self.max_tokens, self.forward_cost_tokens)
        ]


def length_buckets(lengths: Sequence[int], max_tokens: int, forward_cost_tokens: float) -> list[list[int]]:
    """Split texts into forwards, longest first; returns the positions of each forward's texts.

    A forward is padded to its longest text, and holds at most `max_tokens` with padding, or one text. A new one is
    begun when padding the next text would waste more, together with what is wasted already, than a forward of its
    own costs.
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
