"""Choosing the device, and saying in words what was found."""

from collections.abc import Sequence

import joblib
import torch

from app.errors import StartFailed


def choose_device(requested: str, index: int, cuda_visible_devices: str | None) -> torch.device:
    """The device for worker number `index`: one card each on CUDA, the same device for all elsewhere.

    Raises StartFailed where the device is not there.
    """
    cards = card_names()
    if requested == "auto":
        requested = "cuda" if cards else "mps" if torch.backends.mps.is_available() else "cpu"
    if requested.startswith("cuda"):
        first = int(requested.partition(":")[2] or 0)
        if first + index >= len(cards):
            raise StartFailed(missing_card(first + index, cards, cuda_visible_devices))
        return torch.device("cuda", first + index)
    if requested == "mps" and not torch.backends.mps.is_available():
        raise StartFailed("--device mps: there is no Metal device here; use --device cpu.")
    return torch.device(requested)


def card_names() -> list[str]:
    """The CUDA cards this process sees, in the order of their logical numbers."""
    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def card_uuids(first: int, cards: int) -> list[str]:
    """The ids of so many cards, as NVIDIA's management library has them."""
    return [f"GPU-{torch.cuda.get_device_properties(i).uuid}" for i in range(first, first + cards)]


def missing_card(wanted: int, cards: Sequence[str], cuda_visible_devices: str | None) -> str:
    """Why `cuda:<wanted>` is not there, and which cards are."""
    if not cards:
        seen = "this process sees no CUDA card (torch is built "
        seen += f"for CUDA {torch.version.cuda})" if torch.version.cuda else "without CUDA)"
        return f"--device cuda:{wanted}: {seen}; use --device cpu, or check the driver and the container's GPU access."
    found = "; ".join(describe_card(i, name, cuda_visible_devices) for i, name in enumerate(cards))
    return f"--device cuda:{wanted}: there is no such card. This process sees {len(cards)}: {found}."


def describe_card(logical: int, name: str, cuda_visible_devices: str | None) -> str:
    """One card in words, with its physical identity where CUDA_VISIBLE_DEVICES renumbers."""
    visible = [part.strip() for part in (cuda_visible_devices or "").split(",") if part.strip()]
    if logical >= len(visible):
        return f"cuda:{logical} is {name}"
    return f"cuda:{logical} is {name}, card {visible[logical]} of the machine (CUDA_VISIBLE_DEVICES renumbers)"


def describe_device(device: torch.device, cuda_visible_devices: str | None) -> str:
    """The device in words, for the log and `/info`."""
    if device.type == "cuda":
        index = device.index or 0
        return describe_card(index, torch.cuda.get_device_name(index), cuda_visible_devices)
    if device.type == "cpu":
        return f"cpu, {granted_cores()} cores granted"
    return str(device)


def granted_cores() -> int:
    """Cores this process may use: by affinity and by the container's quota, not by what the machine has."""
    return int(joblib.cpu_count())
