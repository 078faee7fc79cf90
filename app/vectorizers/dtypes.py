"""Choosing the number type: the half type that the model and the device do well with, or float32."""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812  # its customary name
from transformers import AutoConfig

from app.vectorizers.sources import ModelSource

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
TOO_LARGE_FOR_FLOAT16 = {"gemma", "gemma2", "gemma3_text", "t5", "mt5", "umt5"}
"""Families whose hidden states are known to exceed float16's 65,504."""
BFLOAT16_CAPABILITY = (8, 0)
WORTHWHILE = 1.2
"""A half type must be so many times as fast as float32 in a bare matrix product."""
PROBE_ROUNDS = 5
PROBE_SHAPE = 256, 384, 1536
"""Tokens, and the widths of a small encoder's first feed-forward layer: milliseconds in either type."""


def choose_dtype(requested: str, device: torch.device, source: ModelSource) -> torch.dtype:
    """`auto` is the model's better half type on CUDA; bfloat16 on a CPU that has it in hardware and gains by it; else
    float32."""
    if requested != "auto":
        return DTYPES[requested]
    if device.type == "cuda":
        return half_for_card(*checkpoint(source), torch.cuda.get_device_capability(device))
    if device.type == "cpu" and has_bfloat16_hardware() and bfloat16_gain() >= WORTHWHILE:
        return torch.bfloat16
    return torch.float32


def half_for_card(family: str | None, own: torch.dtype | None, capability: tuple[int, int]) -> torch.dtype:
    """float16 is the more exact one; bfloat16 is for models trained in it, or too large for the other."""
    needs_range = family in TOO_LARGE_FOR_FLOAT16
    if not needs_range and own != torch.bfloat16:
        return torch.float16
    if capability >= BFLOAT16_CAPABILITY:
        return torch.bfloat16
    return torch.float32 if needs_range else torch.float16


def checkpoint(source: ModelSource) -> tuple[str | None, torch.dtype | None]:
    """The family and the number type that the model's files name, each None where they do not."""
    try:
        config = AutoConfig.from_pretrained(
            source.location, revision=source.revision, local_files_only=source.local, trust_remote_code=False
        )
    except (OSError, ValueError):  # older sentence-transformers models keep it in a folder of its own
        return None, None
    return config.model_type, getattr(config, "dtype", None)


def name_of(dtype: torch.dtype) -> str:
    """As users write it."""
    return str(dtype).removeprefix("torch.")


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device computes in bfloat16 at all, however fast."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= BFLOAT16_CAPABILITY


def has_bfloat16_hardware() -> bool:
    """Whether this CPU multiplies bfloat16 itself: AVX512-BF16 or AMX."""
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


def bfloat16_gain(clock: Callable[[], float] = time.perf_counter) -> float:
    """How many times as fast as float32 a linear layer is in bfloat16, best against best of some alternated rounds, on
    this thread's cores; takes some milliseconds."""
    tokens, narrow, wide = PROBE_SHAPE
    best: dict[torch.dtype, float] = {}
    with torch.inference_mode():
        tensors = {
            dtype: (torch.ones(tokens, narrow, dtype=dtype), torch.ones(wide, narrow, dtype=dtype))
            for dtype in (torch.float32, torch.bfloat16)
        }
        for _ in range(PROBE_ROUNDS):
            for dtype, (inputs, weight) in tensors.items():
                started = clock()
                F.linear(inputs, weight)
                best[dtype] = min(best.get(dtype, float("inf")), clock() - started)
    return best[torch.float32] / best[torch.bfloat16]
