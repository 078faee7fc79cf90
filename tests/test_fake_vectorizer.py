"""The simulated device."""

import time

import numpy as np
import pytest

from app.errors import NotFinite, OutOfMemory, StartFailed, TokenizerFailed, WrongModel
from app.vectorizers.base import TextInput, Token
from app.vectorizers.fake import FakeLaw, FakeVectorizer


def fake(query: str = "", **limits: int) -> FakeVectorizer:
    defaults = {"max_batch_tokens": 0, "max_batch_items": 8}
    return FakeVectorizer(
        FakeLaw.parse(f"fake://?dim=16&base_ms=0&item_ms=0&{query}"), name="fake", **{**defaults, **limits}
    )


def test_a_row_depends_on_its_text_alone_and_has_unit_length() -> None:
    together = fake()(["a b", "c", "d e f"])
    alone = fake()(["c"])
    assert together.dtype == np.float32
    assert together.shape == (3, 16)
    np.testing.assert_array_equal(together[1], alone[0])
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-6)
    assert len(np.unique(together, axis=0)) == 3


def test_no_texts_give_no_rows() -> None:
    assert fake()([]).shape == (0, 16)


def test_it_takes_the_time_its_law_says() -> None:
    vectorizer = FakeVectorizer(
        FakeLaw.parse("fake://?base_ms=20&item_ms=5&token_ms=1"), name="f", max_batch_tokens=0, max_batch_items=8
    )
    started = time.perf_counter()
    vectorizer(["one two", "three"])
    assert time.perf_counter() - started >= (20 + 2 * 5 + 7 * 1) / 1000


def test_tokens_are_words_and_two_special_ones_and_the_maximum_holds() -> None:
    (right, left) = fake("max_tokens=5").tokenize([TextInput("a b c d e f"), TextInput("a b c d e f", cut_left=True)])
    assert (right.text, right.n_tokens, right.n_cut) == ("a b c", 5, 3)
    assert (left.text, left.n_tokens, left.n_cut) == ("d e f", 5, 3)


def test_a_prompt_is_part_of_the_text() -> None:
    (encoding,) = fake().tokenize([TextInput("b", prompt="a ")])
    assert encoding.text == "a b"


@pytest.mark.parametrize(
    ("query", "texts", "error"),
    [
        ("fail_on=BAD", ["fine", "a BAD one"], ValueError),
        ("nan_on=NAN", ["fine", "a NAN one"], NotFinite),
        ("oom_above=1", ["a", "b"], OutOfMemory),
        ("die_on=DIE", ["DIE"], SystemExit),
    ],
)
def test_faults_come_on_demand(query: str, texts: list[str], error: type[BaseException]) -> None:
    with pytest.raises(error):
        fake(query)(texts)
    assert len(fake(query)(["fine"])) == 1


def test_a_slow_text_takes_longer() -> None:
    started = time.perf_counter()
    fake("slow_on=SLOW&slow_ms=30")(["SLOW"])
    assert time.perf_counter() - started >= 0.03


@pytest.mark.parametrize("query", ["dim=0", "dim=x", "colour=red", "labels=-1", "base_ms=-1", "max_tokens=2"])
def test_a_law_that_makes_no_sense_is_refused_by_name(query: str) -> None:
    with pytest.raises(StartFailed, match=query.partition("=")[0]):
        FakeLaw.parse(f"fake://?{query}")


# --- tokens, and the rows of each ------------------------------------------------------------------------------------


def test_a_tokens_row_depends_on_its_text_and_its_place_there() -> None:
    vectorizer = fake()
    first, second = vectorizer.token_vectors(vectorizer.tokenize([TextInput("a b"), TextInput("c")]))
    (alone,) = vectorizer.token_vectors(vectorizer.tokenize([TextInput("c")]))
    assert first.shape == (4, 16)
    assert first.dtype == np.float32
    np.testing.assert_array_equal(second, alone)
    assert len(np.unique(np.concatenate([first, second]), axis=0)) == 7
    assert vectorizer.token_vectors([]) == []


@pytest.mark.parametrize(
    ("query", "text", "error"),
    [
        ("fail_on=BAD", "a BAD one", ValueError),
        ("nan_on=NAN", "a NAN one", NotFinite),
        ("die_on=DIE", "DIE", SystemExit),
    ],
)
def test_token_rows_have_the_same_faults(query: str, text: str, error: type[BaseException]) -> None:
    vectorizer = fake(query)
    with pytest.raises(error):
        vectorizer.token_vectors(vectorizer.tokenize([TextInput("fine"), TextInput(text)]))


def test_token_rows_take_the_time_the_law_says() -> None:
    vectorizer = FakeVectorizer(FakeLaw.parse("fake://?base_ms=20"), name="f", max_batch_tokens=0, max_batch_items=8)
    started = time.perf_counter()
    vectorizer.token_vectors(vectorizer.tokenize([TextInput("a")]))
    assert time.perf_counter() - started >= 0.02


def test_words_are_tokens_with_places_and_ids_of_their_own() -> None:
    ((begin, first, second, end),) = fake().tokens([" ab  cd"], special=True)
    assert (begin, end) == (Token(0, "[CLS]", True, None, None), Token(1, "[SEP]", True, None, None))
    assert first == Token(first.id, "ab", False, 1, 3)
    assert second == Token(second.id, "cd", False, 5, 7)
    assert fake().tokens(["ab", "cd ab"], special=False) == [
        [Token(first.id, "ab", False, 0, 2)],
        [Token(second.id, "cd", False, 0, 2), Token(first.id, "ab", False, 3, 5)],
    ]
    assert 2 <= first.id < fake().info.vocabulary_size


def test_ids_become_words_with_those_ids() -> None:
    assert fake().decode([[0, 17, 1], []], skip_special=True) == ["#17", ""]
    assert fake().decode([[0, 17, 1]], skip_special=False) == ["[CLS] #17 [SEP]"]
    assert [token.id for token in fake().tokens(["#17 #29999"], special=False)[0]] == [17, 29999]
    with pytest.raises(TokenizerFailed, match="30000"):
        fake().decode([[30_000]], skip_special=True)


# --- a classifier ----------------------------------------------------------------------------------------------------


def test_with_labels_it_classifies() -> None:
    info = fake("labels=3").info
    assert (info.kind, info.dimension, info.labels) == ("classification", 3, ("LABEL_0", "LABEL_1", "LABEL_2"))
    assert info.details["activation"] == "Identity"
    assert fake("labels=1").info.details["activation"] == "Sigmoid"
    assert (fake().info.kind, fake().info.labels) == ("embedding", ())


def test_logits_depend_on_both_texts_alone() -> None:
    vectorizer = fake("labels=2")
    pairs = [TextInput("a", pair="b"), TextInput("a", pair="c"), TextInput("a"), TextInput("b", pair="a")]
    rows = vectorizer(vectorizer.tokenize(pairs))
    assert rows.shape == (4, 2)
    assert rows.dtype == np.float32
    assert len(np.unique(rows, axis=0)) == 4
    assert np.abs(rows).max() <= 8
    np.testing.assert_array_equal(vectorizer(vectorizer.tokenize(pairs[1:2])), rows[1:2])
    assert vectorizer([]).shape == (0, 2)


def test_the_longer_text_of_a_pair_is_cut_first() -> None:
    whole = TextInput("a b", pair="c d e f g")
    right, left = fake("max_tokens=8&labels=1").tokenize([whole, whole._replace(cut_left=True)])
    assert (right.text, right.pair, right.n_tokens, right.n_cut) == ("a b", "c d e", 8, 2)
    assert (left.text, left.pair, left.n_tokens, left.n_cut) == ("a b", "e f g", 8, 2)


def test_the_second_text_has_faults_too_and_a_classifier_gives_no_token_rows() -> None:
    vectorizer = fake("labels=1&fail_on=BAD")
    with pytest.raises(ValueError, match="BAD"):
        vectorizer(vectorizer.tokenize([TextInput("a", pair="BAD")]))
    with pytest.raises(WrongModel):
        vectorizer.token_vectors(vectorizer.tokenize([TextInput("a")]))
