"""Texts in parts that a token budget allows."""

from collections.abc import Iterator, Sequence

from app.vectorizers.tokenizer import TokenIds


def parts(texts: Sequence[TokenIds], max_tokens: int) -> Iterator[Sequence[TokenIds]]:
    """Split texts, in their order, so that each part holds at most `max_tokens` or is one text."""
    start = tokens = 0
    for end, text in enumerate(texts):
        if end > start and tokens + text.n_tokens > max_tokens:
            yield texts[start:end]
            start, tokens = end, 0
        tokens += text.n_tokens
    yield texts[start:]
