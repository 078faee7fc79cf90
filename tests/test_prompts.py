"""Prompts: named, by kind of input, by default."""

import pytest

from app.errors import InvalidInput
from app.prompts import INPUT_TYPES, NO_PROMPT, prompt_for


def test_a_kind_of_input_finds_the_models_own_prompt_for_it() -> None:
    assert prompt_for("query", {"query": "Q: ", "document": ""}) == "query"
    assert prompt_for("search_query", {"search_query": "S: "}) == "search_query"
    assert prompt_for("document", {"query": "Q: ", "passage": "P: "}) == "passage"
    assert prompt_for("search_document", {"document": "D: ", "passage": "P: "}) == "document"
    assert prompt_for("clustering", {"Clustering": "C: "}) == "Clustering"


def test_a_model_without_one_gets_none() -> None:
    for input_type in INPUT_TYPES:
        assert prompt_for(input_type, {"other": "x"}) == NO_PROMPT


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="is 'poem'; it must be one of query, "):
        prompt_for("poem", {})
