"""The tokenizer step: texts to token ids, cut to what the model reads, without any state that a call could change."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from tokenizers import Tokenizer

from app.errors import StartFailed, TokenizerFailed
from app.vectorizers.base import TextInput, Token

T = TypeVar("T")

DEFAULT_MAX_TOKENS = 512
"""Where neither the model nor its tokenizer names a maximum."""


class TokenIds(NamedTuple):
    """One input as the model reads it: its token ids, how many were cut off, how many belong to the prompt.

    `prompt_tokens` counts only where the model leaves the prompt out when it pools. `types` are the token types, as
    many as there are ids, where the model is told them; None for all 0.
    """

    ids: list[int]
    n_cut: int = 0
    prompt_tokens: int = 0
    types: list[int] | None = None

    @property
    def n_tokens(self) -> int:
        return len(self.ids)


class TextTokenizer:
    """A copy of a model's own fast tokenizer, with neither truncation nor padding.

    Both are done here instead, by each input's own wishes: the library's are settings of the tokenizer, and changing
    them between threads is an error ("Already borrowed").
    """

    knows_types = False

    def __init__(
        self,
        own: Any,
        *,
        max_tokens: int | None,
        embedded_tokens: int,
        counts_prompt: bool,
        positions: int | None = None,
    ) -> None:
        """`own` is transformers' tokenizer of the model, `embedded_tokens` the rows of its embedding matrix,
        `positions` how many tokens of a text have a position, where there is a limit."""
        if not getattr(own, "is_fast", False):
            raise StartFailed("The model has no fast tokenizer (tokenizer.json), which Convoy needs.")
        self._tokenizer = Tokenizer.from_str(own.backend_tokenizer.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._counts_prompt = counts_prompt
        self.vocabulary_size = min(self._tokenizer.get_vocab_size(with_added_tokens=True), embedded_tokens)
        self.pad_id: int = own.pad_token_id if own.pad_token_id is not None else 0
        self.pad_left: bool = own.padding_side == "left"
        longest = max_tokens or own.model_max_length
        longest = int(longest) if longest and longest < 1_000_000 else DEFAULT_MAX_TOKENS
        self.max_tokens = longest if positions is None else min(longest, positions)
        sample = self._tokenizer.encode("a")
        self._n_before = sample.special_tokens_mask.index(0)
        self._n_after = sample.special_tokens_mask[::-1].index(0)
        if any(sample.type_ids) and not self.knows_types:
            raise StartFailed(
                "The model's tokenizer gives a text token types other than 0, which Convoy does not know."
            )

    def __call__(self, inputs: Sequence[TextInput]) -> list[TokenIds]:
        """All inputs in one call of the library, which releases the interpreter meanwhile."""
        texts = [self._as_text(one) for one in inputs]
        encoded = iter(self._encode([text for text in texts if text is not None]))
        return [
            self._cut(one, one.content if text is None else next(encoded).ids)  # type: ignore[arg-type]  # ids, as there is no text
            for one, text in zip(inputs, texts, strict=True)
        ]

    def tokens(self, texts: Sequence[str], *, special: bool) -> list[list[Token]]:
        """The tokens of each text, with their places in it; raises TokenizerFailed. Any thread may call it."""
        try:
            encoded = panics_are_errors(
                lambda: self._tokenizer.encode_batch(list(texts), add_special_tokens=special), "cannot be tokenized"
            )
        except (TypeError, ValueError) as error:
            raise TokenizerFailed(f"cannot be tokenized: {error}") from error
        return [_tokens_of(text, one) for text, one in zip(texts, encoded, strict=True)]

    def decode(self, ids: Sequence[Sequence[int]], *, skip_special: bool) -> list[str]:
        """The text of each list of token ids; raises TokenizerFailed. Any thread may call it."""
        for one in ids:
            if wrong := [token_id for token_id in one if not 0 <= token_id < self.vocabulary_size]:
                raise TokenizerFailed(
                    f"holds the token id {wrong[0]}; the model's vocabulary is 0 to {self.vocabulary_size - 1}"
                )
        lists = [list(one) for one in ids]
        return panics_are_errors(
            lambda: self._tokenizer.decode_batch(lists, skip_special_tokens=skip_special), "cannot be decoded"
        )

    def _encode(self, texts: Sequence[str | tuple[str, str]]) -> list[Any]:
        return panics_are_errors(lambda: self._tokenizer.encode_batch_fast(list(texts)), "cannot be tokenized")

    def _as_text(self, one: TextInput) -> str | None:
        """What is to be tokenized, or None where the input brings its own ids."""
        if isinstance(one.content, str):
            return one.prompt + one.content
        if one.prompt:
            return one.prompt + self._tokenizer.decode(one.content, skip_special_tokens=True)
        return None

    def _cut(self, one: TextInput, ids: list[int]) -> TokenIds:
        """Cut to the model's maximum, sparing the special tokens at either end."""
        n_cut = max(0, len(ids) - self.max_tokens)
        if n_cut:
            end = len(ids) - self._n_after
            before, content, after = ids[: self._n_before], ids[self._n_before : end], ids[end:]
            ids = before + (content[n_cut:] if one.cut_left else content[: len(content) - n_cut]) + after
        return TokenIds(ids, n_cut, self._prompt_tokens(one.prompt) if one.prompt and self._counts_prompt else 0)

    def _prompt_tokens(self, prompt: str) -> int:
        return len(self._tokenizer.encode(prompt).ids) - self._n_after


def panics_are_errors(call: Callable[[], T], problem: str) -> T:
    """What the call of the library gives; raises TokenizerFailed where Rust panics, which would end the thread."""
    try:
        return call()
    except BaseException as panic:
        if type(panic).__name__ == "PanicException":
            raise TokenizerFailed(f"{problem}: {panic}") from panic
        raise


def _tokens_of(text: str, encoded: Any) -> list[Token]:
    """The tokens of an encoding of the library's; offsets count characters."""
    return [
        Token(token_id, token, True, None, None) if special else Token(token_id, text[start:stop], False, start, stop)
        for token_id, token, special, (start, stop) in zip(
            encoded.ids, encoded.tokens, encoded.special_tokens_mask, encoded.offsets, strict=True
        )
    ]
