"""The table of results in docs/clients.md, written by a run of these tests."""

from tests.clients.catalogue import CASES, CLIENTS, Case
from tests.clients.recipes import PAGE

START = "<!-- Written by `make test-clients ARGS=--write-table`: -->\n"
END = "<!-- Until here. -->\n"


class Table:
    """What a run has found so far."""

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}
        self._found: dict[tuple[str, Case], str] = {}

    def note_version(self, recipe: str, version: str) -> None:
        self._versions[recipe] = version

    def note(self, recipe: str, case: Case, found: str) -> None:
        self._found[recipe, case] = found

    @property
    def complete(self) -> bool:
        return len(self._found) == len(CLIENTS) * len(CASES)

    def markdown(self) -> str:
        rows = [["client", "package", "changed", *CASES], ["---"] * (3 + len(CASES))]
        for client in CLIENTS:
            found = [self._found.get((client.recipe, case), "**fails**") for case in CASES]
            package = f"{client.package} {self._versions.get(client.recipe, '')}"
            rows.append([f"[{client.recipe}]({anchor(client.recipe)})", package, client.changed, *found])
        return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def anchor(heading: str) -> str:
    """Where a heading is found on its page, as GitHub makes it."""
    kept = "".join(char for char in heading.lower() if char.isalnum() or char in " -_")
    return "#" + kept.replace(" ", "-")


def shown() -> str:
    """The table that the page has."""
    return PAGE.read_text().partition(START)[2].partition(END)[0]


def write(table: str) -> None:
    before, start, rest = PAGE.read_text().partition(START)
    _, end, after = rest.partition(END)
    assert start
    assert end
    PAGE.write_text(before + start + table + end + after)
