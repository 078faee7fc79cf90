"""The packed forward on a CUDA device: one copy in, launches without a look back, one copy out."""

import queue
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from app.vectorizers.base import Matrix
from app.vectorizers.forward.attention import Layout, RaggedLayout, TiledLayout
from app.vectorizers.forward.graphs import Ladder, rung_for
from app.vectorizers.forward.packed import Packed, split
from app.vectorizers.forward.row import Row
from app.vectorizers.forward.staging import Slot, read
from app.vectorizers.forward.tiles import plan_tiles
from app.vectorizers.tokenizer import TokenIds

HOST_MEMORY = 0.8
"""Weight of the past in the average of the host's own time."""
SLOTS = 2
"""Batches on their way at a time: while one runs, the next is staged and launched behind it."""
RAGGED_CAPABILITY = (8, 0)
"""The kernel for ragged rows needs Ampere or newer, and a half number type."""

Run = Callable[[Tensor, Tensor, Tensor, Layout], Tensor]
"""What to compute from ids, positions and starts on the device."""


def has_ragged_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether attention can take the boundaries of the texts; tiles serve elsewhere."""
    return dtype != torch.float32 and torch.cuda.get_device_capability(device) >= RAGGED_CAPABILITY


class CudaForward:
    """May be called by `SLOTS` threads at a time; their batches run on the device one after another.

    Between the copy in and the copy out nothing asks the device for a value, so the launching thread never waits; it
    waits once, at the end, for an event, and lets other threads run meanwhile.
    """

    name = "packed"

    def __init__(self, model: Packed, device: torch.device, *, ragged: bool) -> None:
        self._model = model
        self._device = device
        self._ragged = ragged
        self.ladder: Ladder | None = None
        """The recorded forwards; None runs every batch eagerly."""
        self.host_s = 0.0
        """How long a batch has lately kept the host busy before the device could begin with it, in seconds."""
        self._launching = threading.Lock()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._free: queue.SimpleQueue[tuple[Slot, torch.cuda.Event]] = queue.SimpleQueue()
        for _ in range(SLOTS):
            self._free.put((Slot(), torch.cuda.Event(blocking=True)))  # type: ignore[no-untyped-call]

    def record(self, most_tokens: int, longest_text: int) -> Sequence[int]:
        """Record the forwards of small batches as CUDA graphs; returns their sizes in tokens."""
        if not self._ragged:
            return ()
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            self.ladder = Ladder(self._model, self._device, most_tokens, longest_text)
        return self.ladder.rungs

    def __call__(self, texts: Sequence[TokenIds]) -> Matrix:
        """Rows, not normalised, float32 of shape (n, dimension)."""
        started = time.perf_counter()
        row = self._model.pack(texts)
        slot, done = self._free.get()
        try:
            launch = self._stage(row, slot)
            staged_s = time.perf_counter() - started
            with self._launching, torch.cuda.device(self._device), torch.cuda.stream(self._stream):
                began = time.perf_counter()
                vectors = slot.receive(launch()[: len(texts)])
                done.record(self._stream)
                self._took_the_host(staged_s + time.perf_counter() - began)
            done.synchronize()
            rows: Matrix = vectors.numpy().copy()
            return rows
        except BaseException:
            self._stream.synchronize()  # nothing may still read the slot when the next batch is written into it
            raise
        finally:
            self._free.put((slot, done))

    def computed_tokens(self, sizes: Sequence[int]) -> int:
        """The size of the recorded forward that takes them; as many as they have where none does."""
        tokens = sum(sizes)
        rung = rung_for(tokens, len(sizes), self.ladder.rungs) if self.ladder is not None else None
        return tokens if rung is None else rung

    def token_vectors(self, texts: Sequence[TokenIds]) -> list[Matrix]:
        """Last hidden states, for each text float32 of shape (n_tokens, width).

        Always eager; the way out is not through pinned memory, since these are many more numbers than rows have.
        """
        row = self._model.pack(texts)
        slot, done = self._free.get()
        try:
            launch = self._stage_eagerly(row, slot, self._states)
            with self._launching, torch.cuda.device(self._device), torch.cuda.stream(self._stream):
                states = launch()
                done.record(self._stream)
            done.synchronize()
            return split(states.cpu().float().numpy(), row)
        except BaseException:
            self._stream.synchronize()
            raise
        finally:
            self._free.put((slot, done))

    def _states(self, ids: Tensor, positions: Tensor, _: Tensor, layout: Layout) -> Tensor:
        return self._model.states(ids, positions, layout)

    def _took_the_host(self, seconds: float) -> None:
        self.host_s = HOST_MEMORY * self.host_s + (1 - HOST_MEMORY) * seconds if self.host_s else seconds

    def device_seconds(self, texts: Sequence[TokenIds], repeats: int = 20) -> float:
        """Seconds that the device itself needs for a batch: launched again and again without a pause between."""
        slot = Slot()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        launch = self._stage(self._model.pack(texts), slot)
        with self._launching, torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            launch()
            start.record()
            for _ in range(repeats):
                launch()
            end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000 / repeats

    def _stage(self, row: Row, slot: Slot) -> Callable[[], Tensor]:
        """Write into the slot what the device needs; returns what launches the copy and the forward."""
        if self.ladder is not None and (found := self.ladder.find(row)) is not None:
            arrays, recorded = found
            _, host = slot.stage(arrays)
            return lambda: recorded.replay(host)
        return self._stage_eagerly(row, slot, self._model)

    def _stage_eagerly(self, row: Row, slot: Slot, run: Run) -> Callable[[], Tensor]:
        return self._stage_ragged(row, slot, run) if self._ragged else self._stage_tiled(row, slot, run)

    def _stage_ragged(self, row: Row, slot: Slot, run: Run) -> Callable[[], Tensor]:
        parts, host = slot.stage([row.ids, row.positions, row.starts.astype(np.int32)])
        longest = int(row.lengths.max())

        def launch() -> Tensor:
            ids, positions, starts = read(parts, host.to(self._device, non_blocking=True))
            return run(ids, positions, starts, RaggedLayout(starts, longest))

        return launch

    def _stage_tiled(self, row: Row, slot: Slot, run: Run) -> Callable[[], Tensor]:
        plan = plan_tiles(row)
        parts, host = slot.stage([row.ids, row.positions, row.starts, *[part for part in plan[1:] if part is not None]])

        def launch() -> Tensor:
            ids, positions, starts, *rest = read(parts, host.to(self._device, non_blocking=True))
            there = iter(rest)
            tensors = [None if part is None else next(there) for part in plan[1:]]
            return run(ids, positions, starts, TiledLayout(plan.groups, *tensors))

        return launch
