"""Estimating the tokens of a text before it is tokenized."""

SPECIAL_TOKENS = 2
"""What a model adds to a text, as BERT adds one at either end."""
TOKENS_PER_CHARACTER = 0.25
"""Of English text; what is embedded here is soon known better."""
HALF_CHARACTERS = 4000
"""A request with so many characters moves the estimate half of the way to its own ratio."""


class TokenEstimate:
    """Learns the ratio of tokens to characters from the texts that were tokenized."""

    def __init__(self, max_tokens: int) -> None:
        """`max_tokens` is the longest text that the model reads: what exceeds it is cut."""
        self._max_tokens = max_tokens
        self._per_character = TOKENS_PER_CHARACTER

    def of_text(self, characters: int) -> int:
        """About so many tokens has a text of so many characters, as far as it is read."""
        return min(self._max_tokens, SPECIAL_TOKENS + int(self._per_character * characters))

    def of_ids(self, ids: int) -> int:
        """The tokens of a list of so many token ids, as far as it is read."""
        return min(self._max_tokens, ids)

    def learn(self, texts: int, characters: int, tokens: int) -> None:
        """So many texts with so many characters turned out to have so many tokens, those that were cut off included."""
        ratio = max(0, tokens - SPECIAL_TOKENS * texts) / characters
        self._per_character += (ratio - self._per_character) * characters / (characters + HALF_CHARACTERS)
