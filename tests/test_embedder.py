"""The embedder, over a batcher with the simulated device."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from app.batching import Batcher, Policy
from app.embedder import Embedder, EmbedOptions, finish
from app.errors import EmptyInput, InvalidInput, TokenizerFailed
from app.intake import MAX_CHARACTERS_PER_TOKEN, Intake
from app.items import prepare, run
from app.vectorizers.base import Matrix, TextInput
from app.vectorizers.fake import FakeEncoding, FakeLaw, FakeVectorizer
from app.worker import Worker
from tests.simulated import Tally


class Prompted(FakeVectorizer):
    """A simulated model with prompts, whose raw rows are three long."""

    @property
    def info(self) -> Any:
        info = super().info
        return type(info)(
            **{**{name: getattr(info, name) for name in info.__slots__}, "prompts": {"query": "Q: ", "passage": ""}}
        )

    def __call__(self, inputs: Any, *, normalize: bool | None = None) -> Matrix:
        return super().__call__(inputs, normalize=normalize) * np.float32(3)

    def tokenize(self, inputs: Any) -> list[FakeEncoding]:
        if any("UNREADABLE" in str(one.content) for one in inputs):
            raise ValueError("cannot read this")
        return super().tokenize(inputs)


VECTORIZER = Prompted(
    FakeLaw.parse("fake://?dim=8&base_ms=0&item_ms=0&max_tokens=6"), name="f", max_batch_tokens=100, max_batch_items=8
)


@asynccontextmanager
async def embedder(truncate: bool = True, vectorizer: FakeVectorizer = VECTORIZER) -> AsyncIterator[Embedder]:
    async with Worker("w") as worker:
        batcher: Batcher[TextInput, Any] = Batcher(
            [partial(worker.call, run, vectorizer)],
            policy=Policy(max_batch_items=8, max_batch_tokens=100, max_queue_items=100, max_queue_tokens=10_000),
            facts=Tally(),
            prepare=partial(worker.call, prepare, vectorizer),
        )
        async with batcher:
            yield Embedder(Intake(VECTORIZER.info, batcher, max_inputs=5, truncate=truncate, request_timeout_ms=5000))


def embed(*contents: Any, truncate_by_default: bool = True, **options: Any) -> Any:
    async def main() -> Any:
        async with embedder(truncate_by_default) as one:
            return await one.embed(list(contents), EmbedOptions(**options))

    return asyncio.run(main())


def test_rows_come_in_order_with_unit_length_or_raw() -> None:
    unit, raw = embed("a", "b").rows, embed("a", "b", normalize=False).rows
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(raw, 3 * unit, rtol=1e-6)
    np.testing.assert_array_equal(embed("b").rows[0], unit[1])


def test_dimensions_cut_and_then_scale_to_unit_length_again() -> None:
    whole, cut = embed("a", "b").rows, embed("a", "b", dimensions=4).rows
    assert cut.shape == (2, 4)
    np.testing.assert_allclose(cut, whole[:, :4] / np.linalg.norm(whole[:, :4], axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(embed("a", dimensions=4, normalize=False).rows[0], 3 * whole[0, :4], rtol=1e-6)


def test_a_prompt_is_put_before_the_text() -> None:
    np.testing.assert_array_equal(embed("a", prompt_name="query").rows, embed("Q: a").rows)
    np.testing.assert_array_equal(embed("a", prompt_name="passage").rows, embed("a").rows)


def test_truncation_is_counted_and_a_request_may_say_otherwise_than_the_service() -> None:
    long = "a b c d e f g h"
    assert embed("a", long).bill.truncated == 1
    np.testing.assert_array_equal(embed(long).rows, embed("a b c d").rows)
    np.testing.assert_array_equal(embed(long, cut_left=True).rows, embed("e f g h").rows)
    assert embed(long, truncate=True, truncate_by_default=False).bill.truncated == 1
    for options in ({"truncate": False}, {"truncate_by_default": False}):
        with pytest.raises(InvalidInput, match="has 10 tokens; the limit is 6") as refused:
            embed("a", long, **options)
        assert refused.value.index == 1


@pytest.mark.parametrize(
    ("contents", "options", "error", "says", "index"),
    [
        ([], {}, EmptyInput, "empty list", None),
        (["a", ""], {}, EmptyInput, "is empty", 1),
        ([[1], []], {}, EmptyInput, "is empty", 1),
        (["a"] * 6, {}, InvalidInput, "holds 6 inputs; the limit is 5", None),
        ([[1, 30_000]], {}, InvalidInput, "token id 30000", 0),
        ([[-1]], {}, InvalidInput, "token id -1", 0),
        (["a"], {"dimensions": 9}, InvalidInput, "is 9; the model has 8", None),
        (["a"], {"dimensions": 0}, InvalidInput, "is 0; the model has 8", None),
        (["a"], {"input_type": ""}, InvalidInput, "must be one of query", None),
        (["a"], {"input_type": "poem", "prompt_name": "query"}, InvalidInput, "must be one of query", None),
        (["a"], {"prompt_name": "nope"}, InvalidInput, r'"passage", "query"', None),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_place_and_limit(
    contents: list[Any], options: dict[str, Any], error: type[InvalidInput], says: str, index: int | None
) -> None:
    with pytest.raises(error, match=says) as refused:
        embed(*contents, **options)
    assert refused.value.index == index


def test_a_text_that_the_tokenizer_cannot_read_costs_no_neighbour_its_answer() -> None:
    async def main() -> None:
        async with embedder() as one:
            texts = ["a", "UNREADABLE", "b"]
            calls = [one.embed([text], EmbedOptions()) for text in texts]
            good, bad, also_good = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(bad, TokenizerFailed)
            assert bad.index == 0
            assert not isinstance(good, BaseException)
            assert not isinstance(also_good, BaseException)

    asyncio.run(main())


def test_megabytes_of_which_the_model_reads_a_page_do_not_wait_in_the_queue() -> None:
    seen: list[int] = []

    class Measuring(Prompted):
        def tokenize(self, inputs: Any) -> list[FakeEncoding]:
            seen.extend(len(one.content) for one in inputs)
            return super().tokenize(inputs)

    async def main() -> None:
        async with embedder(
            vectorizer=Measuring(VECTORIZER._law, name="f", max_batch_tokens=9, max_batch_items=8)
        ) as one:
            left = await one.embed(["word " * 100_000 + "end"], EmbedOptions(cut_left=True))
            np.testing.assert_array_equal(left.rows, (await one.embed(["word word word end"], EmbedOptions())).rows)

    asyncio.run(main())
    assert seen[0] == 6 * MAX_CHARACTERS_PER_TOKEN


def test_a_row_of_zeros_stays_what_it_is() -> None:
    zeros = np.zeros(4, dtype=np.float32)
    assert finish([zeros, zeros], EmbedOptions(dimensions=2)).tolist() == [[0, 0], [0, 0]]


def test_a_kind_of_input_gets_the_models_prompt_for_it_and_the_bill_names_it() -> None:
    cases: list[tuple[dict[str, Any], str, str | None]] = [
        ({"input_type": "search_query"}, "Q: ", "query"),
        ({"input_type": "document"}, "", "passage"),
        ({"input_type": "clustering"}, "", None),
        ({"prompt_name": "query", "input_type": "document"}, "Q: ", "query"),
        ({"prompt_name": ""}, "", None),
        ({}, "", None),
    ]
    for options, prompt, name in cases:
        answer = embed("a b", **options)
        assert answer.bill.prompt_name == name, options
        np.testing.assert_array_equal(answer.rows, embed(prompt + "a b").rows)


def test_a_default_prompt_applies_where_a_request_says_nothing() -> None:
    async def main() -> None:
        async with embedder() as one:
            named = Embedder(one._intake, default_prompt_name="query")
            plain, asked = await named.embed(["a"], EmbedOptions()), await one.embed(["Q: a"], EmbedOptions())
            np.testing.assert_array_equal(plain.rows, asked.rows)
            assert plain.bill.prompt_name == "query"
            for options in (EmbedOptions(prompt_name=""), EmbedOptions(input_type="document")):
                without = await named.embed(["a"], options)
                np.testing.assert_array_equal(without.rows, (await one.embed(["a"], EmbedOptions())).rows)

    asyncio.run(main())
