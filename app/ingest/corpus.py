"""A file of texts: one a line, as plain text, as JSON strings, or as JSON objects with the text in one field."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HEAD_BYTES = 1_048_576
"""So much of a file tells whether it is still the same one, besides its size and the time of its last change."""


class BadLine(Exception):
    """A line that holds no text; says why."""


class Entry(NamedTuple):
    """A line that is not blank: its number in the file, from 1, and what it holds."""

    number: int
    raw: bytes


class Corpus:
    """The texts of one file, read line by line whenever they are wanted."""

    def __init__(self, path: Path, field: str) -> None:
        """Lines of a `.txt` file are texts as they stand; of any other they are JSON, and `field` is the one of an
        object that holds the text."""
        self.path = path
        self._field = field
        self._plain = path.suffix == ".txt"

    def entries(self) -> Iterator[Entry]:
        """Every line that is not blank; raises OSError."""
        with self.path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                if not raw.isspace():
                    yield Entry(number, raw)

    def count(self) -> int:
        """How many lines are not blank."""
        return sum(1 for _ in self.entries())

    def text(self, raw: bytes) -> str:
        """The text of a line; raises BadLine."""
        try:
            return self._text(raw.rstrip(b"\r\n").decode() if self._plain else json.loads(raw))
        except UnicodeDecodeError as error:
            raise BadLine(f"it is not UTF-8: {error}") from None
        except (ValueError, RecursionError) as error:
            raise BadLine(f"it is not JSON: {error}") from None

    def _text(self, value: Any) -> str:
        if isinstance(value, dict):
            if self._field not in value:
                raise BadLine(f"it has no field {self._field!r}; --field names the one with the text")
            value = value[self._field]
        if not isinstance(value, str):
            raise BadLine("it holds no text: a line is a JSON string, or an object with one")
        return value

    def identity(self) -> dict[str, Any]:
        """What tells this file from another, or from what it was before; raises OSError."""
        status = self.path.stat()
        with self.path.open("rb") as file:
            head = hashlib.sha256(file.read(HEAD_BYTES)).hexdigest()
        return {"bytes": status.st_size, "changed_ns": status.st_mtime_ns, "head_sha256": head}
