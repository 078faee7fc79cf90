"""Fixtures: two servers that ask for a key, one of which is easily overloaded, and each client in turn."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.clients.catalogue import CLIENTS, Client
from tests.clients.driver import Driver, driving
from tests.clients.recipes import KEY, Recipe, read_recipes
from tests.clients.table import Table
from tests.server import RunningServer, running_server


class Used(NamedTuple):
    """A client, and the process in which it runs."""

    client: Client
    driver: Driver


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-table", action="store_true", help="write the results into docs/clients.md")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "the_table" in item.name)  # it is compared when all else has run


@pytest.fixture(scope="session")
def table() -> Table:
    return Table()


@pytest.fixture(scope="session")
def recipes() -> dict[str, Recipe]:
    return read_recipes()


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    """The bundled model, in float32: there a vector hardly depends on what shares its batch."""
    with running_server("--dtype", "float32", "--api-key", KEY) as server:
        yield server


@pytest.fixture(scope="session")
def small_server() -> Iterator[RunningServer]:
    """A simulated device that takes a millisecond for each token; one input may wait for it."""
    flags = ("--workers", "1", "--max-inputs", "1", "--max-queue-items", "1", "--api-key", KEY)
    with running_server("--model", "fake://?dim=8&base_ms=0&item_ms=0&token_ms=1&max_tokens=4096", *flags) as server:
        yield server


@pytest.fixture(scope="session", params=CLIENTS, ids=lambda client: client.recipe)
def used(request: pytest.FixtureRequest, recipes: dict[str, Recipe], table: Table) -> Iterator[Used]:
    client: Client = request.param
    with driving(recipes[client.recipe]) as driver:
        table.note_version(client.recipe, driver.version(client.package))
        yield Used(client, driver)


def embed(server: RunningServer, inputs: str | list[str], **options: Any) -> list[list[float]]:
    """The rows that the service's own `POST /embed` gives."""
    headers = {"authorization": f"Bearer {KEY}"}
    answer = httpx.post(server.url + "/embed", json={"inputs": inputs, **options}, headers=headers, timeout=60)
    answer.raise_for_status()
    rows: list[list[float]] = answer.json()
    return rows
