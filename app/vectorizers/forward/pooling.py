"""From the tokens of a packed row to one vector a text, in float32."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812  # its customary name
from torch import Tensor

Pool = Callable[[Tensor, Tensor], Tensor]
"""From hidden states (tokens, width) and boundaries (n + 1,) to float32 (n, width)."""


def mean(hidden: Tensor, starts: Tensor) -> Tensor:
    """The mean over each text's tokens."""
    every = torch.arange(hidden.shape[0], device=hidden.device, dtype=starts.dtype)
    return F.embedding_bag(every, hidden.float(), starts, mode="mean")[:-1]  # the last bag is what only fills the row


def first(hidden: Tensor, starts: Tensor) -> Tensor:
    """Each text's first token, which BERT calls CLS; of an empty text, whatever is nearest."""
    return hidden.index_select(0, starts[:-1].clamp(max=hidden.shape[0] - 1)).float()


def last(hidden: Tensor, starts: Tensor) -> Tensor:
    """Each text's last token."""
    return hidden.index_select(0, starts[1:] - 1).float()


POOLS: dict[str, Pool] = {"mean": mean, "cls": first, "lasttoken": last}
"""By the names sentence-transformers gives them."""
