"""The page's table and its recipes: of this run, and of every client."""

import pytest

from tests.clients import table as page
from tests.clients.catalogue import CLIENTS
from tests.clients.recipes import Recipe
from tests.clients.table import Table


def test_every_client_has_its_recipe_and_every_recipe_its_client(recipes: dict[str, Recipe]) -> None:
    assert list(recipes) == [client.recipe for client in CLIENTS]


def test_the_table_in_the_page_is_what_this_run_found(table: Table, pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--write-table"):
        page.write(table.markdown())
    if not table.complete:
        pytest.skip("only a run of all tests, in which none fails, can tell")
    assert page.shown() == table.markdown()
