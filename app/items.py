"""Items: how the batcher's workers make inputs ready, run a batch of them, and tell which of them are alike."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from app.batching import Prepared
from app.errors import ConvoyError, InvalidInput, TokenizerFailed
from app.vectorizers.base import TINY, Encoding, Matrix, TextInput, Vectorizer


class Ready(NamedTuple):
    """An input ready for the device, whether its row is to have unit length, and whether each token's row is wanted
    instead."""

    encoding: Encoding
    normalize: bool
    per_token: bool = False


def alike(one: TextInput) -> Hashable:
    """Texts with the same options share a row; token ids share with nobody."""
    return one if isinstance(one.content, str) else None


def prepare(vectorizer: Vectorizer[Any], inputs: list[TextInput]) -> list[Prepared | ConvoyError]:
    """Tokenize many inputs in one call, on the calling thread; what cannot be served becomes the error that says so.

    Where the call as a whole fails, each input is tried alone, so that one bad text costs no other its answer.
    """
    try:
        return [_prepared(one, encoding) for one, encoding in zip(inputs, vectorizer.tokenize(inputs), strict=True)]
    except Exception as error:
        if len(inputs) == 1:
            return [TokenizerFailed(f"cannot be tokenized: {error}")]
        return [outcome for one in inputs for outcome in prepare(vectorizer, [one])]


def _prepared(one: TextInput, encoding: Encoding) -> Prepared | ConvoyError:
    if encoding.n_cut and not one.truncate:
        total = encoding.n_tokens + encoding.n_cut
        return InvalidInput(f"has {total} tokens; the limit is {encoding.n_tokens} with truncation off")
    return Prepared(Ready(encoding, one.normalize, one.per_token), encoding.n_tokens)


def run(vectorizer: Vectorizer[Any], batch: list[Ready]) -> Sequence[Matrix] | Matrix:
    """One batch through the vectorizer, on the calling thread; scales the rows that are to have unit length.

    A row is float32 of shape (dimension,), or (tokens, width) for an input of which each token's is wanted.
    """
    if not any(one.per_token for one in batch):
        return _run_pooled(vectorizer, batch)
    pooled = [one for one in batch if not one.per_token]
    vectors = iter(_run_pooled(vectorizer, pooled)) if pooled else iter(())
    by_token = iter(vectorizer.token_vectors([one.encoding for one in batch if one.per_token]))
    return [next(by_token) if one.per_token else next(vectors) for one in batch]


def _run_pooled(vectorizer: Vectorizer[Any], batch: list[Ready]) -> Matrix:
    rows = vectorizer([one.encoding for one in batch], normalize=False)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    lengths[[not one.normalize for one in batch]] = 1
    return rows / np.maximum(lengths, TINY)  # type: ignore[no-any-return]
