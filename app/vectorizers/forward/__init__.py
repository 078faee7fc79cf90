"""Ways through the model: packed without padding where the architecture allows it, padded in buckets elsewhere."""

from collections.abc import Sequence
from typing import Protocol

from app.vectorizers.base import Matrix
from app.vectorizers.tokenizer import TokenIds


class Forward(Protocol):
    """One way through a model."""

    @property
    def name(self) -> str:
        """What the log and `/info` call it."""

    def __call__(self, texts: Sequence[TokenIds]) -> Matrix:
        """Rows, not normalised, float32 of shape (n, dimension), in the order of the texts."""

    def computed_tokens(self, sizes: Sequence[int]) -> int:
        """How many tokens are computed for texts of so many tokens each, padding included."""

    def token_vectors(self, texts: Sequence[TokenIds]) -> list[Matrix]:
        """The last hidden state at each token, for each text float32 of shape (n_tokens, width), in their order."""
