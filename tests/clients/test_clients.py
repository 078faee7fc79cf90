"""Each client, unmodified, against a real server: right vectors, and errors that say what is wrong."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from tests.clients.catalogue import Case
from tests.clients.conftest import Used, embed
from tests.clients.driver import Raised
from tests.clients.recipes import KEY
from tests.clients.table import Table
from tests.server import RunningServer

QUEUED = 'convoy_queue_items{lane="interactive"}'
SHED = 'convoy_items_total{lane="interactive",outcome="shed"}'
LONG = "card " * 1999 + "card"
TAKES_2500_MS = "card " * 2498


def assert_same(vectors: list[list[float]], expected: list[list[float]]) -> None:
    """The directions agree; lengths may not, since some clients ask for vectors that are not normalized."""
    found, wanted = np.array(vectors), np.array(expected)
    assert found.shape == wanted.shape
    cosines = (found * wanted).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(wanted, axis=1)
    assert cosines.min() >= 0.9999


def refused(used: Used, table: Table, case: Case, call: Callable[[], object], reason: str) -> None:
    """The call raises, and what it raises says why, where the client is one that tells."""
    with pytest.raises(Raised) as raised:
        call()
    hidden = used.client.hides.get(case)
    assert (hidden or reason) in str(raised.value)
    table.note(used.client.recipe, case, f"`{hidden}`" if hidden else "says why")


def test_one_text_has_the_vector_that_embed_gives(used: Used, server: RunningServer, table: Table) -> None:
    used.driver.connect(server.url, KEY)
    text = "Where is my card?"
    assert_same([used.driver.one(text)], embed(server, text))
    table.note(used.client.recipe, "one text", "equal")


def test_a_hundred_texts_have_the_vectors_that_embed_gives(used: Used, server: RunningServer, table: Table) -> None:
    used.driver.connect(server.url, KEY)
    texts = [f"Question {i}: where is {'my ' * (i % 17)}card?" for i in range(100)]
    assert_same(used.driver.many(texts), embed(server, texts))
    table.note(used.client.recipe, "100 texts", "equal")


def test_an_empty_text_is_refused_with_the_reason(used: Used, server: RunningServer, table: Table) -> None:
    used.driver.connect(server.url, KEY)
    refused(used, table, "empty text", lambda: used.driver.one(""), "is empty; send")


def test_a_text_too_long_for_the_model_is_cut_as_embed_cuts_it(used: Used, server: RunningServer, table: Table) -> None:
    used.driver.connect(server.url, KEY)
    if "2,000 tokens" in used.client.hides:
        refused(used, table, "2,000 tokens", lambda: used.driver.one(LONG), "tokens")
        return
    assert_same([used.driver.one(LONG)], embed(server, LONG))
    table.note(used.client.recipe, "2,000 tokens", "equal")


def test_a_wrong_key_is_refused_with_the_reason(used: Used, server: RunningServer, table: Table) -> None:
    used.driver.connect(server.url, "another")
    refused(used, table, "wrong key", lambda: used.driver.one("Where is my card?"), "needs its API key")


def test_a_wrong_key_gives_no_vectors_for_a_list(used: Used, server: RunningServer) -> None:
    used.driver.connect(server.url, "another")
    texts = ["Where is my card?", "My card has not arrived."]
    if used.client.silent:
        assert used.driver.many(texts) == [None, None]
    else:
        with pytest.raises(Raised):
            used.driver.many(texts)


def test_overload_is_retried_or_reported(used: Used, small_server: RunningServer, table: Table) -> None:
    used.driver.connect(small_server.url, KEY)
    used.driver.one("warm")
    expected = embed(small_server, "Where is my card?")
    shed = small_server.metric(SHED)
    with full_queue(small_server):
        if used.client.retries:
            assert_same([used.driver.one("Where is my card?")], expected)
            table.note(used.client.recipe, "overload", "retries")
        else:
            refused(used, table, "overload", lambda: used.driver.one("Where is my card?"), "--max-queue-items")
    assert small_server.metric(SHED) > shed


@contextmanager
def full_queue(server: RunningServer) -> Iterator[None]:
    """The device is busy with one text, and another takes the only place in the queue."""

    def until(value: Callable[[], float], at_least: float) -> None:
        asyncio.run(server.until(value, at_least))

    dispatched = server.metric("convoy_batch_items_sum")
    with ThreadPoolExecutor(2) as crowd:
        slow = crowd.submit(embed, server, TAKES_2500_MS)
        until(lambda: server.metric("convoy_batch_items_sum"), dispatched + 1)
        waiting = crowd.submit(embed, server, "waiting")
        until(lambda: server.metric(QUEUED), 1)
        yield
        slow.result()
        waiting.result()
