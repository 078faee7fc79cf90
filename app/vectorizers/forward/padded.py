"""The padded forward, for what cannot be packed: sentence-transformers' own modules over texts of like length."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor, nn

from app.errors import BackendFailed
from app.vectorizers.base import Matrix
from app.vectorizers.tokenizer import TextTokenizer, TokenIds

Output = Literal["sentence_embedding", "scores"]
"""What the modules call the rows that are wanted: an embedding model's vectors, a cross-encoder's logits."""

LEAST_FORWARD_COST_TOKENS = 32
"""No forward is so cheap that padding this little is worth another; a measurement that says so was disturbed."""


class PaddedForward:
    """Runs a sentence-transformers model bucket by bucket, each padded to its longest text.

    `max_tokens` bounds the tokens of one bucket, padding included, unless a single text exceeds it;
    `forward_cost_tokens` is the fixed cost of a forward in units of one token's cost.
    """

    name = "padded, sorted by length"

    def __init__(
        self,
        model: SentenceTransformer | CrossEncoder,
        tokenizer: TextTokenizer,
        *,
        max_tokens: int,
        output: Output = "sentence_embedding",
    ) -> None:
        modules = list(model)
        self._modules = nn.Sequential(*(modules[:-1] if isinstance(modules[-1], Normalize) else modules)).eval()
        self._output = output
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
        """Rows, not normalised, float32 of shape (n, dimension); read from the device once, at the end."""
        buckets = self._buckets(texts)
        found = torch.cat([self._run([texts[i] for i in bucket]) for bucket in buckets]).cpu().numpy()
        rows: Matrix = np.empty_like(found)
        rows[np.concatenate(buckets)] = found
        return rows

    def computed_tokens(self, sizes: Sequence[int]) -> int:
        """Each bucket times its longest; texts with prompts of different lengths, which never share one, count as if
        they did."""
        buckets = length_buckets(sizes, self.max_tokens, self.forward_cost_tokens)
        return sum(len(bucket) * sizes[bucket[0]] for bucket in buckets)

    def token_vectors(self, texts: Sequence[TokenIds]) -> list[Matrix]:
        """Last hidden states, for each text float32 of shape (n_tokens, width)."""
        found: dict[int, Matrix] = {}
        for bucket in self._buckets(texts):
            found.update(zip(bucket, self._token_vectors([texts[i] for i in bucket]), strict=True))
        return [found[i] for i in range(len(texts))]

    def _run(self, texts: Sequence[TokenIds]) -> Tensor:
        rows: Tensor = self._modules(self._features(texts))[self._output]
        return rows.float()

    def _token_vectors(self, texts: Sequence[TokenIds]) -> list[Matrix]:
        features = self._modules[0](self._features(texts))
        if "token_embeddings" not in features:
            raise BackendFailed("This model gives no vector for each token.")
        states: Matrix = features["token_embeddings"].float().cpu().numpy()
        return [
            one[len(one) - text.n_tokens :] if self._pad_left else one[: text.n_tokens]
            for one, text in zip(states, texts, strict=True)
        ]

    def _features(self, texts: Sequence[TokenIds]) -> dict[str, Any]:
        """What the modules read: ids (n, longest), and what goes with them."""
        ids, mask = pad([text.ids for text in texts], self._pad_id, left=self._pad_left)
        features: dict[str, Any] = {"input_ids": self._to_device(ids)}
        if mask is not None:
            features["attention_mask"] = self._to_device(mask)
        if any(text.types is not None for text in texts):
            types, _ = pad([text.types or [0] * text.n_tokens for text in texts], 0, left=self._pad_left)
            features["token_type_ids"] = self._to_device(types)
        if prompt_tokens := texts[0].prompt_tokens:
            features["prompt_length"] = prompt_tokens
        return features

    def _to_device(self, array: npt.NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self._device)

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
