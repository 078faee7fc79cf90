"""What a tokenizer tells of texts, and what it makes of ids."""

import threading
from typing import Any

import pytest
from transformers import AutoTokenizer

from app.errors import TokenizerFailed
from app.vectorizers.base import TextInput, Token
from app.vectorizers.sources import find_model
from app.vectorizers.tokenizer import TextTokenizer

TEXTS = ["Where is my card?", "Ünïcödé 日本語 🚀", "a [SEP] b", " ", "antidisestablishmentarianism " * 200]


@pytest.fixture(scope="module")
def own() -> Any:
    return AutoTokenizer.from_pretrained(find_model("bundled", None).location)


@pytest.fixture(scope="module")
def bundled(own: Any) -> TextTokenizer:
    return TextTokenizer(own, max_tokens=256, embedded_tokens=30_522, counts_prompt=False)


def test_a_token_tells_where_it_lies_in_its_text_in_characters(bundled: TextTokenizer) -> None:
    (tokens,) = bundled.tokens(["Ünïcödé card"], special=True)
    assert tokens == [
        Token(101, "[CLS]", True, None, None),
        Token(tokens[1].id, "Ünïcödé", False, 0, 7),
        Token(tokens[2].id, "card", False, 8, 12),
        Token(102, "[SEP]", True, None, None),
    ]


@pytest.mark.parametrize("special", [True, False])
def test_tokens_are_those_of_the_models_own_tokenizer_and_none_is_cut(
    special: bool, bundled: TextTokenizer, own: Any
) -> None:
    expected = own(TEXTS, add_special_tokens=special, truncation=False, verbose=False)["input_ids"]
    found = bundled.tokens(TEXTS, special=special)
    assert [[token.id for token in tokens] for tokens in found] == expected
    assert len(found[-1]) > 256
    for text, tokens in zip(TEXTS, found, strict=True):
        assert sum(token.special for token in tokens) == (2 if special else 0)
        assert all(token.text == text[token.start : token.stop] for token in tokens if not token.special)


def test_no_texts_have_no_tokens(bundled: TextTokenizer) -> None:
    assert bundled.tokens([], special=True) == []
    assert bundled.decode([], skip_special=True) == []


@pytest.mark.parametrize("skip_special", [True, False])
def test_ids_become_the_text_that_the_models_own_tokenizer_makes_of_them(
    skip_special: bool, bundled: TextTokenizer, own: Any
) -> None:
    ids = [encoding.ids for encoding in bundled([TextInput(text) for text in TEXTS])]
    expected = [own.decode(one, skip_special_tokens=skip_special, clean_up_tokenization_spaces=True) for one in ids]
    assert bundled.decode(ids, skip_special=skip_special) == expected


@pytest.mark.parametrize("wrong", [-1, 30_522, 2**40])
def test_an_id_that_the_vocabulary_lacks_is_refused_by_name(wrong: int, bundled: TextTokenizer) -> None:
    with pytest.raises(TokenizerFailed, match=f"the token id {wrong}; the model's vocabulary is 0 to 30521"):
        bundled.decode([[101, wrong]], skip_special=False)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_a_text_that_is_no_text_is_refused(text: str, bundled: TextTokenizer) -> None:
    with pytest.raises(TokenizerFailed, match="cannot be tokenized"):
        bundled.tokens([text], special=True)


def test_a_panic_becomes_an_error(bundled: TextTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    panic = type("PanicException", (BaseException,), {})

    class Panicking:
        def encode_batch(self, texts: list[str], **_: Any) -> None:
            raise panic("index out of bounds")

        decode_batch = encode_batch

    monkeypatch.setattr(bundled, "_tokenizer", Panicking())
    with pytest.raises(TokenizerFailed, match="index out of bounds"):
        bundled.tokens(["a"], special=True)
    with pytest.raises(TokenizerFailed, match="index out of bounds"):
        bundled.decode([[1]], skip_special=True)


def test_any_number_of_threads_may_ask_at_a_time(bundled: TextTokenizer) -> None:
    expected = bundled.tokens(TEXTS, special=True), bundled([TextInput(TEXTS[0])])
    wrong: list[object] = []

    def ask() -> None:
        for _ in range(20):
            found = bundled.tokens(TEXTS, special=True), bundled([TextInput(TEXTS[0])])
            if found != expected:
                wrong.append(found)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
