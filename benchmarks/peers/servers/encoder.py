"""The model as most services run it: sentence-transformers on a CPU, one `encode` a batch, whatever frame calls it.

Every server beside it shares these lines, so that they differ by their frame's batching alone. Options come from the
environment, since some of the frames start processes of their own and read the command line themselves.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

MAX_PENDING = 4096
"""Requests that a frame may hold at once, where it has such a bound: more than any workload here sends."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the benchmark asks of a server."""

    model_dir: str
    dtype: str
    port: int
    workers: int
    threads: int
    """Of torch, in each worker."""
    max_batch_size: int
    max_wait_ms: float

    @classmethod
    def from_environment(cls) -> "Options":
        get = os.environ.__getitem__
        return cls(
            model_dir=get("PEER_MODEL"),
            dtype=get("PEER_DTYPE"),
            port=int(get("PEER_PORT")),
            workers=int(get("PEER_WORKERS")),
            threads=int(get("PEER_THREADS")),
            max_batch_size=int(get("PEER_MAX_BATCH_SIZE")),
            max_wait_ms=float(get("PEER_MAX_WAIT_MS")),
        )


class Encoder:
    """Texts in, unit rows of floats out."""

    def __init__(self, options: Options) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(options.threads)
        self._batch_size = options.max_batch_size
        self._model = SentenceTransformer(
            options.model_dir, device="cpu", model_kwargs={"dtype": getattr(torch, options.dtype)}
        )
        self.encode(["warm-up"] * options.max_batch_size)

    def encode(self, texts: Sequence[str]) -> Any:
        """A float32 matrix of (texts, dimension)."""
        return self._model.encode(list(texts), batch_size=self._batch_size, show_progress_bar=False)

    def answers(self, requests: Sequence[str | list[str]]) -> list[bytes]:
        """The answer in JSON to each request of a batch; a request is one text or a list of them."""
        lists = [[request] if isinstance(request, str) else request for request in requests]
        rows = self.encode([text for texts in lists for text in texts])
        answers = []
        for texts in lists:
            answers.append(as_json(rows[: len(texts)]))
            rows = rows[len(texts) :]
        return answers


def as_json(rows: Any) -> bytes:
    """The matrix as a JSON list of lists, made by orjson: the frames' own encoders would be slower."""
    return orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)
