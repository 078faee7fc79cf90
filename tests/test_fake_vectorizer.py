"""The simulated device."""

import time

import numpy as np
import pytest

from app.errors import NotFinite, OutOfMemory, StartFailed
from app.vectorizers.base import TextInput
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


@pytest.mark.parametrize("query", ["dim=0", "dim=x", "colour=red", "base_ms=-1", "max_tokens=2"])
def test_a_law_that_makes_no_sense_is_refused_by_name(query: str) -> None:
    with pytest.raises(StartFailed, match=query.partition("=")[0]):
        FakeLaw.parse(f"fake://?{query}")
