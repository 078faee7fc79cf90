"""The texts that calls are measured with: made up, as long as queries are, the same at every run."""

import random

from app.vectorizers.base import ModelInfo, TextInput

WORDS = (
    "account", "a", "after", "and", "arrived", "bank", "can", "card", "do", "for", "help", "how", "I", "in", "is",
    "money", "my", "not", "of", "please", "rate", "that", "the", "to", "transfer", "was", "week", "when", "where",
)  # fmt: skip
WORDS_EACH = (2, 5, 8, 9, 10, 11, 13, 22)
"""Their lengths in words, so that texts are as unlike each other as queries are: 10 in the mean."""
WORDS_OF_ONE = 10
"""Length of a text that is alone."""


def inputs(count: int, model: ModelInfo) -> list[TextInput]:
    """So many texts with the model's default prompt; pairs of a query and a passage for a classifier."""
    rng = random.Random(0)
    prompt = model.prompts.get(model.default_prompt_name or "", "")
    lengths = [WORDS_OF_ONE] if count == 1 else [WORDS_EACH[i % len(WORDS_EACH)] for i in range(count)]
    if model.kind == "classification":
        query = _text(rng, WORDS_OF_ONE)
        return [TextInput(query, prompt, pair=_text(rng, length)) for length in lengths]
    return [TextInput(_text(rng, length), prompt) for length in lengths]


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words)) + "?"
