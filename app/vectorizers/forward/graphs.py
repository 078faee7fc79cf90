"""CUDA graphs for small batches: the whole forward launched at once, where launching costs more than computing."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog
import torch
from torch import Tensor

from app.vectorizers.forward.attention import RaggedLayout
from app.vectorizers.forward.row import Row, pack
from app.vectorizers.forward.staging import lay_out, read, write

log = structlog.get_logger(__name__)

RUNGS = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
"""Tokens of the forwards that are recorded; a batch takes the next larger one."""
LEAST_TEXT_TOKENS = 3
"""A text has its own two special tokens, as a rule; a batch of more and shorter texts than that runs eagerly."""
TOLERANCE = 0.02
"""How far a recorded forward's vectors may be from an eager one's, relative to the largest number."""

Forward = Callable[[Tensor, Tensor, Tensor, RaggedLayout], Tensor]


def room_for_texts(rung: int) -> int:
    """How many texts the recorded forward of a rung takes."""
    return rung // LEAST_TEXT_TOKENS


def rung_for(tokens: int, texts: int, rungs: Sequence[int]) -> int | None:
    """The smallest rung that takes so many tokens of so many texts, or None."""
    return next((rung for rung in rungs if tokens <= rung and texts <= room_for_texts(rung)), None)


def fill(row: Row, rung: int) -> list[npt.NDArray[np.generic]]:
    """Ids, positions and starts of a row in the fixed shapes of a rung.

    What is left of the tokens makes one more text, of which nothing is read; the texts that are missing are empty, at
    the end.
    """
    real = int(row.starts[-1])
    ids, positions = np.zeros((2, rung), np.int64)
    ids[:real] = row.ids[:real]
    positions[:real] = row.positions[:real]
    starts = np.full(room_for_texts(rung) + 2, rung, np.int32)
    starts[: len(row.starts)] = row.starts
    return [ids, positions, starts]


class Recorded:
    """One recorded forward, with memory of its own for a rung's arrays and for the vectors; all on one stream."""

    def __init__(self, rung: int, forward: Forward, device: torch.device, pool: Any, longest_text: int) -> None:
        arrays = fill(ragged(rung, longest_text), rung)
        parts = lay_out(arrays)
        host = torch.empty(parts[-1].end, dtype=torch.uint8)
        write(arrays, parts, host)
        self._arrays = host.to(device)
        ids, positions, starts = read(parts, self._arrays)
        layout = RaggedLayout(starts, longest=rung)
        for _ in range(2):  # what libraries prepare at a first call must not be recorded
            eager = forward(ids, positions, starts, layout)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool, stream=torch.cuda.current_stream(device)):
            self._vectors = forward(ids, positions, starts, layout)
        self._graph.replay()
        off = float((self._vectors - eager).abs().max() / eager.abs().max())
        if not off <= TOLERANCE:
            raise RecordingFailed(f"the recorded forward of {rung} tokens is off by {off:.3g} of the largest number")

    def replay(self, arrays: Tensor) -> Tensor:
        """Launch the copy of a rung's arrays, as bytes in pinned memory, and the forward; returns where its vectors
        will be, until the next replay."""
        self._arrays.copy_(arrays, non_blocking=True)
        self._graph.replay()
        return self._vectors


class Ladder:
    """Recorded forwards of growing size on the current stream, as far as `most_tokens`; they share one pool of memory.
    The model reads texts of up to `longest_text` tokens.

    Where recording fails, the log says why and every batch runs eagerly.
    """

    def __init__(self, forward: Forward, device: torch.device, most_tokens: int, longest_text: int) -> None:
        self._recorded: dict[int, Recorded] = {}
        pool = torch.cuda.graph_pool_handle()
        try:
            for rung in sorted((rung for rung in RUNGS if rung <= most_tokens), reverse=True):
                self._recorded[rung] = Recorded(rung, forward, device, pool, longest_text)
        except (RecordingFailed, RuntimeError) as error:
            log.warning("CUDA graphs are not used", reason=str(error))
            self._recorded.clear()
        self.rungs = sorted(self._recorded)

    def find(self, row: Row) -> tuple[list[npt.NDArray[np.generic]], Recorded] | None:
        """The row in the shapes of the recorded forward that takes it, and that forward; None where none does."""
        rung = rung_for(int(row.starts[-1]), len(row.lengths), self.rungs)
        return None if rung is None else (fill(row, rung), self._recorded[rung])


class RecordingFailed(Exception):
    """A recorded forward computes something else."""


def ragged(rung: int, longest_text: int) -> Row:
    """A row of texts, each longer than the one before as far as they may be, that nearly fills a rung, for checking."""
    lengths = [min(LEAST_TEXT_TOKENS, longest_text)]
    while sum(lengths) + (longer := min(lengths[-1] + 1 + lengths[-1] // 4, longest_text)) < rung:
        lengths.append(longer)
    return pack([[1 + (7 * i + length) % 97 for i in range(length)] for length in lengths])
