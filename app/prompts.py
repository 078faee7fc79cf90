"""Prompts: which of a model's own is meant by the kind of input that a request names."""

import json
from collections.abc import Mapping

from app.errors import InvalidInput

NO_PROMPT = ""
"""As a prompt's name: none, also where the service has a default."""

_QUERY = ("query", "search_query", "web_search_query", "s2p_query")
_DOCUMENT = ("document", "passage", "search_document", "corpus")
INPUT_TYPES: Mapping[str, tuple[str, ...]] = {
    "query": _QUERY,
    "search_query": _QUERY,
    "document": _DOCUMENT,
    "passage": _DOCUMENT,
    "search_document": _DOCUMENT,
    "classification": ("classification", "Classification"),
    "clustering": ("clustering", "Clustering"),
}
"""What Cohere, Voyage and NVIDIA call the kinds of inputs, and the names that models give to the prompts for them. For
queries and documents these begin as sentence-transformers' `encode_query` and `encode_document` look for them."""


def prompt_for(input_type: str, prompts: Mapping[str, str]) -> str:
    """The name of the model's prompt for this kind of input; NO_PROMPT where it has none.

    Raises InvalidInput for a kind that is not known.
    """
    names = INPUT_TYPES.get(input_type)
    if names is None:
        raise InvalidInput(f"is {input_type!r}; it must be one of {', '.join(INPUT_TYPES)}", field="input_type")
    return next((name for name in names if name in prompts), NO_PROMPT)


def unknown_prompt(name: str, prompts: Mapping[str, str]) -> InvalidInput:
    """The error for a prompt that the model does not have; clients of text-embeddings-inference read the list."""
    return InvalidInput(f"is {name!r}. Available prompts: {json.dumps(sorted(prompts))}", field="prompt_name")
