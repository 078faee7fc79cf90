"""Staging: all arrays of a batch in one piece of memory, so that one copy brings them to the device."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

ALIGNMENT = 16
TORCH_TYPES = {np.dtype(np.int64): torch.int64, np.dtype(np.int32): torch.int32}


class Part(NamedTuple):
    """Where one array lies: byte offset, element type and shape."""

    offset: int
    dtype: "np.dtype[np.generic]"
    shape: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.offset + self.dtype.itemsize * int(np.prod(self.shape))


def lay_out(arrays: Sequence[npt.NDArray[np.generic]]) -> list[Part]:
    """Places for arrays one after another, each aligned."""
    parts: list[Part] = []
    end = 0
    for array in arrays:
        parts.append(Part(-(-end // ALIGNMENT) * ALIGNMENT, array.dtype, array.shape))
        end = parts[-1].end
    return parts


def write(arrays: Sequence[npt.NDArray[np.generic]], parts: Sequence[Part], memory: Tensor) -> None:
    """Copy arrays into host memory, a tensor of bytes."""
    host = memory.numpy()
    for array, part in zip(arrays, parts, strict=True):
        host[part.offset : part.end].view(part.dtype).reshape(part.shape)[...] = array


def read(parts: Sequence[Part], memory: Tensor) -> list[Tensor]:
    """The arrays as tensors that share `memory`, on whichever device that is."""
    return [memory[part.offset : part.end].view(TORCH_TYPES[part.dtype]).view(part.shape) for part in parts]


class Slot:
    """Pinned host memory for one batch on its way: its arrays in, its vectors out. It grows as needed."""

    def __init__(self, *, pinned: bool = True) -> None:
        self._pinned = pinned
        self._arrays = self._memory(0)
        self._vectors = self._memory(0)

    def stage(self, arrays: Sequence[npt.NDArray[np.generic]]) -> tuple[list[Part], Tensor]:
        """Write arrays into the slot; returns their places, and the memory that holds them all."""
        parts = lay_out(arrays)
        size = parts[-1].end
        if size > len(self._arrays):
            self._arrays = self._memory(2 * size)
        memory = self._arrays[:size]
        write(arrays, parts, memory)
        return parts, memory

    def receive(self, vectors: Tensor) -> Tensor:
        """Begin to copy vectors (n, dimension) float32 into the slot, and return where they will be."""
        size = vectors.numel() * 4
        if size > len(self._vectors):
            self._vectors = self._memory(2 * size)
        room = self._vectors[:size].view(torch.float32).view(vectors.shape)
        return room.copy_(vectors, non_blocking=True)

    def _memory(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=self._pinned)
