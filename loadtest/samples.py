"""Samples: what became of each request, in columns, and the CSV files that hold them."""

import csv
import gzip
import re
import zlib
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO, cast

import numpy as np
from numpy.typing import NDArray

Outcome = Literal["answered", "shed", "expired", "failed", "wrong"]
OUTCOMES: tuple[Outcome, ...] = ("answered", "shed", "expired", "failed", "wrong")
BILL = ("parse", "tokenize", "queue", "forward", "respond")
"""The parts of a request's time that the server tells in its Server-Timing header."""
SHED, EXPIRED, OK = 429, 504, 200


class Sample(NamedTuple):
    """One request. Times are in seconds since the step began; the bill is in milliseconds, and empty where the server
    sends none."""

    step: str
    items: int
    due_s: float
    """When it should have been sent: latency counts from here, so that a client that is late hides nothing."""
    sent_s: float
    ended_s: float
    counted: bool
    """False in a step's warm-up."""
    outcome: Outcome
    status: int
    tokens: str
    """Of all its texts together, as the server counts them; empty where it does not tell."""
    timing: str
    """The Server-Timing header."""

    def row(self) -> list[object]:
        """As it stands in the CSV file, in the order of `COLUMNS`."""
        parts = dict(re.findall(r"(\w+);dur=([\d.]+)", self.timing))
        batch = dict(re.findall(r"\b(items|tokens)=(\d+)", self.timing))
        times = [f"{self.due_s:.6f}", f"{self.sent_s:.6f}", f"{self.ended_s:.6f}"]
        latency_ms = f"{(self.ended_s - self.due_s) * 1e3:.4f}"
        return [
            self.step, self.items, *times, latency_ms, int(self.counted), self.outcome, self.status, self.tokens,
            *(parts.get(part, "") for part in BILL), parts.get("total", ""),
            batch.get("items", ""), batch.get("tokens", ""),
        ]  # fmt: skip


COLUMNS = (
    "step", "items", "due_s", "sent_s", "ended_s", "latency_ms", "counted", "outcome", "status", "tokens",
    *(f"{part}_ms" for part in BILL), "total_ms", "batch_items", "batch_tokens",
)  # fmt: skip
NAMES = {"target", "step", "outcome"}
READ: Any = {"newline": "", "encoding": "utf-8-sig"}
"""Spreadsheets begin a file with a mark that is no part of the first name."""


def write_samples(samples: Iterable[Sample], path: Path) -> None:
    """As a CSV file with a line of names."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(sample.row() for sample in samples)


class Table:
    """Samples as columns: numbers as float64, with NaN where there is none, names as strings."""

    def __init__(self, columns: dict[str, NDArray[Any]]) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def where(self, mask: NDArray[np.bool_]) -> "Table":
        """The rows that the mask takes."""
        return Table({name: values[mask] for name, values in self._columns.items()})

    @property
    def names(self) -> Sequence[str]:
        """Of the columns."""
        return list(self._columns)


def read_table(path: Path, only: Container[str] | None = None) -> Table:
    """A CSV file with a line of names, gzipped where its name says so; `only` these columns, where they are named.

    Raises OSError, or ValueError where it is no such table.
    """
    with cast(TextIO, gzip.open(path, "rt", **READ) if path.suffix == ".gz" else path.open(**READ)) as file:
        try:
            names, *rows = [row for row in csv.reader(file) if row] or [[]]
        except (csv.Error, EOFError, zlib.error) as error:
            raise ValueError(str(error)) from error
    for row in rows:
        if len(row) != len(names):
            raise ValueError(f"a line has {len(row)} values where {len(names)} columns have names")
    columns: dict[str, NDArray[Any]] = {}
    for name, values in zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True):
        if only is None or name in only:
            columns[name] = np.array(values) if name in NAMES else np.array([_number(value, name) for value in values])
    return Table(columns)


def _number(value: str, column: str) -> float:
    try:
        return float(value or "nan")
    except ValueError:
        raise ValueError(f"`{value}` in the column `{column}` is no number") from None


def join_csv(parts: Iterable[tuple[str, int, Path]], path: Path) -> None:
    """Put the files of several (target, round) into one, gzipped, with a column for each of the two."""
    with gzip.open(path, "wt", newline="") as whole:
        writer = csv.writer(whole)
        writer.writerow(["target", "round", *COLUMNS])
        for target, number, part in parts:
            with part.open(newline="") as file:
                writer.writerows([target, number, *row] for row in list(csv.reader(file))[1:])


def concatenated(tables: Sequence[Table]) -> Table:
    """One below the other; all must have the same columns."""
    if not tables:
        return Table({name: np.array([], dtype=str if name in NAMES else float) for name in COLUMNS})
    return Table({name: np.concatenate([table[name] for table in tables]) for name in tables[0].names})
