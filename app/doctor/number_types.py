"""Number types: which of them this device computes with in hardware, and how much faster that is."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  # its customary name

HALF_TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
CPU_FLAGS = {"float16": ("avx512_fp16", "amx_fp16"), "bfloat16": ("avx512_bf16", "amx_bf16")}
"""The parts of a CPU that multiply in a type, as torch calls them."""
BFLOAT16_CAPABILITY = (8, 0)
ROUNDS = 5
PROBE_ON_CPU = 256, 384, 1536
PROBE_ON_CARD = 4096, 4096, 4096
"""Tokens, and widths: a product of milliseconds."""


@dataclass(frozen=True, slots=True)
class NumberType:
    """A number type: whether the device's hardware multiplies in it, and how many times as fast as in float32 a bare
    matrix product was, None where that was not measured."""

    name: str
    in_hardware: bool
    times_float32: float | None
    because: str


def find_number_types(device: torch.device) -> Sequence[NumberType]:
    """float32 and the half types on the device that the model runs on."""
    if device.type == "cuda":
        known = _on_card(torch.cuda.get_device_capability(device))
    elif device.type == "cpu":
        known = on_cpu(torch.cpu.get_capabilities())
    else:
        known = dict.fromkeys(HALF_TYPES, (False, f"not known of {device.type}"))
    wanted = [name for name, (in_hardware, _) in known.items() if in_hardware]
    gains = _gains(device, wanted) if wanted else {}
    return [
        NumberType("float32", True, 1.0, "every device has it"),
        *[NumberType(name, found, gains.get(name), because) for name, (found, because) in known.items()],
    ]


def on_cpu(capabilities: Mapping[str, object]) -> dict[str, tuple[bool, str]]:
    """Of each half type, whether a CPU with these parts multiplies in it, and why."""
    found = {}
    for name, flags in CPU_FLAGS.items():
        there = [flag for flag in flags if capabilities.get(flag)]
        has = f"has {' and '.join(there)}" if there else f"has neither {' nor '.join(flags)}"
        found[name] = bool(there), f"the CPU {has}"
    return found


def _on_card(capability: tuple[int, int]) -> dict[str, tuple[bool, str]]:
    has = f"compute capability {capability[0]}.{capability[1]}"
    bfloat16 = capability >= BFLOAT16_CAPABILITY
    return {"float16": (capability >= (5, 3), has), "bfloat16": (bfloat16, f"{has}; 8.0 and newer have it")}


def _gains(device: torch.device, names: Sequence[str]) -> dict[str, float]:
    """How many times as fast as float32 a linear layer is, best against best of some alternated rounds."""
    tokens, narrow, wide = PROBE_ON_CARD if device.type == "cuda" else PROBE_ON_CPU
    types = {"float32": torch.float32} | {name: HALF_TYPES[name] for name in names}
    best: dict[str, float] = {}
    with torch.inference_mode():
        tensors = {
            name: [torch.ones(rows, narrow, dtype=one, device=device) for rows in (tokens, wide)]
            for name, one in types.items()
        }
        for _ in range(ROUNDS + 1):
            for name, (inputs, weight) in tensors.items():
                started = time.perf_counter()
                F.linear(inputs, weight)
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                best[name] = min(best.get(name, float("inf")), time.perf_counter() - started)
    return {name: best["float32"] / best[name] for name in names}
