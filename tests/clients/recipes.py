"""The recipes of docs/clients.md: what the page shows is what the tests run."""

import re
from typing import NamedTuple

from tests.server import ROOT

PAGE = ROOT / "docs" / "clients.md"
URL = "http://127.0.0.1:8000"
KEY = "the-key"
RECIPE = re.compile(r"^### (.+)\n(?:(?!^```|^#).*\n)*^```(python|js)\n((?:(?!^```).*\n)*)^```$", re.MULTILINE)
CALLS = re.compile(
    r"(?P<setup>.*?)^(?P<one>(?:const )?vector = .*?)^(?P<many>(?:const )?vectors = .*)", re.MULTILINE | re.DOTALL
)


class Recipe(NamedTuple):
    """How a client is used: its set-up, then `vector` of a `text`, then `vectors` of `texts`."""

    language: str
    setup: str
    one: str
    many: str

    def setup_for(self, url: str, key: str) -> str:
        return self.setup.replace(URL, url).replace(KEY, key)


def read_recipes() -> dict[str, Recipe]:
    """Every recipe of the page by its heading."""
    recipes = {}
    for heading, language, source in RECIPE.findall(PAGE.read_text()):
        parts = CALLS.fullmatch(source)
        assert parts, f"the recipe {heading!r} has no `vector = …` followed by `vectors = …`"
        recipes[heading] = Recipe(language, **parts.groupdict())
    return recipes
