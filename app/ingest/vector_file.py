"""The vectors of a corpus on disk: a `.npy` file that is filled row by row, and how far it is filled."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.format import open_memmap


class CannotResume(Exception):
    """What is on disk does not go with what is asked for; says why, and what to do."""


class VectorFile:
    """Rows, float32 (n, dimension), written in order; beside them, until all are there, a file `….progress` says how
    many are safe on disk, so that whoever is interrupted goes on there."""

    def __init__(self, path: Path, n_rows: int, run: Mapping[str, Any], *, overwrite: bool) -> None:
        """`run` is all that decides what the rows are; rows of another run are not added to.

        Raises CannotResume, and OSError.
        """
        self.path = path
        self.done = 0
        """Rows written so far."""
        self.refused: list[tuple[int, str]] = []
        """Lines without a vector, whose rows are NaN, and why."""
        self.n_rows = n_rows
        self._run = dict(run)
        self._progress = path.with_name(path.name + ".progress")
        self._rows: npt.NDArray[np.float32] | None = None
        if overwrite:
            self._progress.unlink(missing_ok=True)
        elif self._progress.exists():
            self._resume()
        elif path.exists():
            raise CannotResume(f"{path} is there already, and whole or not ours; remove it, or add --overwrite.")

    def _resume(self) -> None:
        try:
            kept = json.loads(self._progress.read_text())
            done, dimension, run = int(kept["rows_done"]), int(kept["dimension"]), kept["run"]
            refused = [(int(number), str(why)) for number, why in kept["refused"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CannotResume(f"{self._progress} cannot be read ({error}); add --overwrite to begin again.") from None
        for name, value in self._run.items():
            if run.get(name) != value:
                raise CannotResume(
                    f"{self.path} was begun with another {name.replace('_', ' ')} ({_short(run.get(name))}, now "
                    f"{_short(value)}); go on with that one, or add --overwrite to begin again."
                )
        try:
            rows = open_memmap(self.path, mode="r+")
        except (OSError, ValueError) as error:
            raise CannotResume(
                f"{self.path} cannot be gone on with ({error}); add --overwrite to begin again."
            ) from None
        if rows.shape != (self.n_rows, dimension) or rows.dtype != np.float32 or not 0 <= done <= self.n_rows:
            raise CannotResume(f"{self.path} is not what {self._progress} says; add --overwrite to begin again.")
        self._rows, self.done, self.refused = rows, done, refused

    @property
    def dimension(self) -> int | None:
        """Columns; None until the first row is there."""
        return self._rows.shape[1] if self._rows is not None else None

    def append(self, row: npt.NDArray[np.float32]) -> None:
        """Write the next row; raises CannotResume where it is not as long as the others."""
        if self._rows is None:
            self._rows = open_memmap(self.path, mode="w+", dtype=np.float32, shape=(self.n_rows, len(row)))
            self._rows[: self.done] = np.nan  # those refused before the first vector said how long a row is
        if len(row) != self._rows.shape[1]:
            raise CannotResume(
                f"The service now sends vectors of {len(row)} numbers, before of {self._rows.shape[1]}: it has another "
                "model. Go on with the first, or add --overwrite to begin again."
            )
        self._rows[self.done] = row
        self.done += 1

    def refuse(self, number: int, why: str) -> None:
        """The next row is NaN: this line of the corpus has no vector."""
        self.refused.append((number, why))
        if self._rows is not None:
            self._rows[self.done] = np.nan
        self.done += 1

    def save(self) -> None:
        """Bring what is written to disk, then say so there: never the other way round."""
        if self._rows is None:
            return
        self._rows.flush()  # type: ignore[attr-defined]  # a memmap
        kept = {"rows_done": self.done, "dimension": self.dimension, "refused": self.refused, "run": self._run}
        beside = self._progress.with_name(self._progress.name + ".new")
        with beside.open("w") as file:
            json.dump(kept, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._progress)

    def finish(self) -> None:
        """All rows are there."""
        if self._rows is not None:
            self._rows.flush()  # type: ignore[attr-defined]  # a memmap
        self._progress.unlink(missing_ok=True)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:200] + "…"
