"""What clients can ask for besides vectors, and what they can ask of vectors."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.clients.conftest import embed
from tests.clients.driver import Driver, Raised, driving
from tests.clients.recipes import KEY, URL, Recipe
from tests.server import RunningServer

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
TEXT = "Where is my card?"
OTHERS = ["My card has not arrived.", "I like walks on the beach."]

Connect = Callable[[str], Driver]


class Further(NamedTuple):
    """A statement that assigns `found`, after a recipe's set-up; and what it is to be."""

    recipe: str
    statement: str
    expected: Callable[[RunningServer], Any]


def similarities(server: RunningServer) -> list[float]:
    rows = np.array(embed(server, [TEXT, *OTHERS]))
    return list(rows[1:] @ rows[0])


FURTHER = (
    Further("openai", "found = [model.id for model in client.models.list()]", lambda _: [MODEL]),
    Further("openai", "found = client.models.retrieve('all-MiniLM-L6-v2').id", lambda _: MODEL),
    Further(
        "openai",
        "found = client.embeddings.create(model='any', input=text, dimensions=64).data[0].embedding",
        lambda server: embed(server, TEXT, dimensions=64)[0],
    ),
    Further(
        "openai",
        "found = client.embeddings.create(model='any', input=text, encoding_format='float').data[0].embedding",
        lambda server: embed(server, TEXT)[0],
    ),
    Further(
        "openai",
        "found = dict(client.embeddings.create(model='any', input=text).usage)",
        lambda _: {"prompt_tokens": 7, "total_tokens": 7},
    ),
    Further("openai, JavaScript", "const found = (await client.models.list()).data[0].id;", lambda _: MODEL),
    Further(
        "langchain-openai",
        "found = await embeddings.aembed_query(text)",
        lambda server: embed(server, TEXT)[0],
    ),
    Further(
        "huggingface_hub",
        "found = client.feature_extraction(text, normalize=True, truncate=True, truncation_direction='left')",
        lambda server: embed(server, TEXT),
    ),
    Further(
        "huggingface_hub",
        f"found = client.sentence_similarity(text, other_sentences=others, model='{URL}/similarity')",
        similarities,
    ),
    Further("tei-client", "found = client.info().server_model_id", lambda _: MODEL),
    Further("tei-client", "found = client.prompt_names()", lambda _: ["document", "query"]),
    Further("tei-client", "found = sorted(client.embed([text, '']))", lambda _: ["error", "error_type"]),
    Further("tei-client", "found = await client.async_embed(text)", lambda server: embed(server, TEXT)),
    Further(
        "tei-client",
        "found = client.embed('card ' * 2000, truncate=True)",
        lambda server: embed(server, "card " * 2000),
    ),
    Further(
        "tei-client",
        "found = [token.text for token in client.tokenize(text)[0].tokens]",
        lambda _: ["[CLS]", "Where", "is", "my", "card", "?", "[SEP]"],
    ),
    Further("tei-client", "found = client.decode(client.tokenize(text)[0].get_ids())", lambda _: ["where is my card?"]),
    Further(
        "tei-client", "found = [len(client.embed_all(text)[0]), len(client.embed_all(text)[0][0])]", lambda _: [7, 384]
    ),
    Further("ollama", "found = client.embeddings('any', text).embedding", lambda server: embed(server, TEXT)[0]),
    Further(
        "ollama",
        "found = client.embed('any', text, dimensions=64).embeddings",
        lambda server: embed(server, TEXT, dimensions=64),
    ),
    Further("ollama", "found = [model.model for model in client.list().models]", lambda _: [MODEL]),
    Further("ollama, JavaScript", "const found = (await client.list()).models[0].name;", lambda _: MODEL),
    Further("ollama, JavaScript", "const found = (await client.version()).version.length > 0;", lambda _: True),
)


@pytest.fixture(scope="module")
def connect(recipes: dict[str, Recipe], server: RunningServer) -> Iterator[Connect]:
    """A client by its recipe, connected to the server; its process is kept until all calls are made."""
    drivers: dict[str, Driver] = {}
    with ExitStack() as stack:

        def connected(recipe: str) -> Driver:
            if recipe not in drivers:
                drivers[recipe] = stack.enter_context(driving(recipes[recipe]))
            drivers[recipe].connect(server.url, KEY)
            return drivers[recipe]

        yield connected


@pytest.mark.parametrize("further", FURTHER, ids=lambda further: further.recipe)
def test_a_further_call_finds_what_it_should(further: Further, connect: Connect, server: RunningServer) -> None:
    statement = further.statement.replace(URL, server.url)
    found = connect(further.recipe).call(statement, "found", text=TEXT, others=OTHERS)
    expected = further.expected(server)
    if np.asarray(expected).dtype.kind == "f":
        np.testing.assert_allclose(found, expected, atol=1e-4)
    else:
        assert found == expected


def test_langchain_that_sends_token_ids_is_told_which_option_sends_texts(
    connect: Connect, recipes: dict[str, Recipe], server: RunningServer
) -> None:
    option = "    check_embedding_ctx_length=False,\n"
    recipe = recipes["langchain-openai"]
    assert option in recipe.setup
    driver = connect("langchain-openai")
    driver.run(recipe.setup_for(server.url, KEY).replace(option, ""))
    with pytest.raises(Raised, match=r"422.*check_embedding_ctx_length=False"):
        driver.one(TEXT)
