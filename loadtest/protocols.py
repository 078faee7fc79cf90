"""The protocols: how a request for vectors is written, and how its answer is read."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from loadtest.errors import LoadTestFailed

Rows = NDArray[np.float32]
UNIT_TOLERANCE = 1e-2
"""By so much a row's length may differ from 1: services that compute in half precision round."""


class WrongAnswer(Exception):
    """A server said 200 and sent something that is not the answer; the message says what is wrong with it."""


class Protocol(NamedTuple):
    """One way to ask for vectors over HTTP."""

    path: str
    inputs: str
    """The name of the field that holds the texts."""
    models_path: str | None
    """Where the served model's name is found, for protocols whose requests must name it."""
    rows: str | None
    """The name of the list of rows in the answer; None where the answer is that list."""

    def body(self, texts: Sequence[str], model: str | None) -> bytes:
        """The request for these texts; a single one travels as a string, not as a list."""
        asked: dict[str, Any] = {self.inputs: texts[0] if len(texts) == 1 else list(texts)}
        if self.models_path is not None:
            asked |= {"model": model, "encoding_format": "float"}
        return orjson.dumps(asked)

    def read(self, content: bytes | None, n_texts: int) -> Rows:
        """The rows, shape (n_texts, dimension); raises WrongAnswer where they are not that many vectors of length 1."""
        try:
            answer = orjson.loads(content or b"")
            lists = answer if self.rows is None else self._in_order(answer[self.rows])
            rows = np.asarray(lists, dtype=np.float32)
        except (ValueError, KeyError, TypeError) as error:
            raise WrongAnswer(f"the answer is not a list of vectors: {type(error).__name__}") from None
        if rows.ndim != 2 or len(rows) != n_texts:
            raise WrongAnswer(f"the answer has the shape {rows.shape} where {n_texts} vectors were asked for")
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        if not np.all(np.abs(lengths - 1) < UNIT_TOLERANCE):  # not-a-number fails this too
            raise WrongAnswer(f"a vector has the length {lengths[np.argmax(np.abs(lengths - 1))]:.4g} instead of 1")
        return rows

    def model_in(self, content: bytes | None) -> str:
        """The first model that the list of models names; raises LoadTestFailed where there is none."""
        try:
            return str(orjson.loads(content or b"")["data"][0]["id"])
        except (ValueError, KeyError, TypeError, IndexError):
            raise LoadTestFailed(f"{self.models_path} names no model; name it with --served-model.") from None

    @staticmethod
    def _in_order(data: list[dict[str, Any]]) -> list[Any]:
        return [one["embedding"] for one in sorted(data, key=lambda one: int(one["index"]))]


PROTOCOLS = {
    "convoy": Protocol("/embed", "inputs", None, None),
    "tei": Protocol("/embed", "inputs", None, None),
    "openai": Protocol("/v1/embeddings", "input", "/v1/models", "data"),
    "infinity": Protocol("/embeddings", "input", "/models", "data"),
}
