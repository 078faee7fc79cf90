"""The tokenizer step of a cross-encoder: two texts as one input, cut as transformers' `longest_first` cuts them."""

from collections.abc import Sequence
from typing import Any

from app.vectorizers.base import TextInput
from app.vectorizers.tokenizer import TextTokenizer, TokenIds


class PairTokenizer(TextTokenizer):
    """Tokenizes pairs of texts, and texts alone, as CrossEncoder does; a prompt is put before the first text."""

    knows_types = True

    def __init__(self, own: Any, *, max_tokens: int | None, embedded_tokens: int, positions: int | None) -> None:
        """As TextTokenizer's; token types are kept where the model's own tokenizer gives them to the model."""
        super().__init__(
            own, max_tokens=max_tokens, embedded_tokens=embedded_tokens, counts_prompt=False, positions=positions
        )
        self._typed = "token_type_ids" in own.model_input_names

    def __call__(self, inputs: Sequence[TextInput]) -> list[TokenIds]:
        """All inputs in one call of the library, which releases the interpreter meanwhile."""
        texts = [self._as_texts(one) for one in inputs]
        encoded = iter(self._encode([text for text in texts if text is not None]))
        return [
            self._cut(one, one.content) if text is None else self._cut_encoded(one, next(encoded))  # type: ignore[arg-type]  # ids, as there is no text
            for one, text in zip(inputs, texts, strict=True)
        ]

    def _as_texts(self, one: TextInput) -> str | tuple[str, str] | None:
        """What is to be tokenized, or None where the input brings its own ids."""
        if one.pair is None:
            return self._as_text(one)
        if isinstance(one.content, str):
            return one.prompt + one.content, one.pair
        return one.prompt + self._tokenizer.decode(one.content, skip_special_tokens=True), one.pair

    def _cut_encoded(self, one: TextInput, encoded: Any) -> TokenIds:
        """Cut an encoding of the library's to the model's maximum, sparing special tokens."""
        ids: list[int] = encoded.ids
        types: list[int] | None = encoded.type_ids if self._typed else None
        n_cut = max(0, len(ids) - self.max_tokens)
        if n_cut:
            kept = kept_places(encoded.sequence_ids, self.max_tokens, cut_left=one.cut_left)
            ids = [ids[place] for place in kept]
            types = types and [types[place] for place in kept]
        return TokenIds(ids, n_cut, types=types)


def kept_places(sequence_ids: Sequence[int | None], most: int, *, cut_left: bool) -> list[int]:
    """Which of an input's tokens are kept, in their order, so that `most` are left.

    `sequence_ids` says of each token to which of the two texts it belongs: 0, 1, or None for special tokens, which
    all stay.
    """
    places: dict[int | None, list[int]] = {None: [], 0: [], 1: []}
    for place, sequence in enumerate(sequence_ids):
        places[sequence].append(place)
    room = max(0, most - len(places[None]))
    kept = places[None]
    for text, length in zip((0, 1), share_room(len(places[0]), len(places[1]), room), strict=True):
        kept += places[text][len(places[text]) - length :] if cut_left else places[text][:length]
    return sorted(kept)


def share_room(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of two texts of `first` and `second` tokens are kept where there is room for so many.

    The longer one is cut until both are alike, then both; of an odd room the one that was longer has one more, the
    second where they were alike, as the library `tokenizers` has it.
    """
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    longer = room - shorter
    return (longer, shorter) if first > second else (shorter, longer)
