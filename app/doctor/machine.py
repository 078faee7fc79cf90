"""The machine: cores, threads, memory, number types and cards, as this process finds them."""

import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from app.doctor.cards import Card, explain_cards
from app.vectorizers.devices import granted_cores

QUOTA_V2 = "sys/fs/cgroup/cpu.max"
QUOTA_V1 = "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "sys/fs/cgroup/cpu/cpu.cfs_period_us"
LIMITS = "sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"
DRIVER = "proc/driver/nvidia/version"
NO_LIMIT_BYTES = 2**60
"""What a cgroup without a limit says is more than this."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Cores of the machine, of the process's affinity, of its cgroup's quota (None for no quota, or where there is none
    to be read), and what is granted of all that."""

    machine: int
    affinity: int | None
    quota: float | None
    granted: int


@dataclass(frozen=True, slots=True)
class Threads:
    """How many threads torch takes for one operator, and for operators beside each other."""

    within_operator: int
    between_operators: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The host's memory in bytes; None where it cannot be read. `peak` is this process's own."""

    total_bytes: int | None
    available_bytes: int | None
    limit_bytes: int | None
    peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found, as plain values. `load` is how many processes wanted a core in the minute before, None where the
    system does not say."""

    cpu: str
    cores: Cores
    threads: Threads
    memory: Memory
    load: float | None
    cards: Sequence[Card]
    cards_explained: Sequence[str]
    driver: str | None
    cuda: str | None
    cudnn_benchmark: bool
    torch: str
    python: str


def find_machine(visible: str | None, order: str | None, load: float | None, nvml: Any = None) -> Machine:
    """What this machine is; `nvml` is NVIDIA's management library, None where it is not installed."""
    cards = _cards(nvml)
    return Machine(
        cpu=_cpu_name(Path("/")),
        cores=find_cores(Path("/")),
        threads=Threads(torch.get_num_threads(), torch.get_num_interop_threads()),
        memory=find_memory(Path("/")),
        load=load,
        cards=cards,
        cards_explained=explain_cards(cards, visible, order, cuda=torch.version.cuda),
        driver=find_driver(Path("/"), nvml),
        cuda=torch.version.cuda,
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        torch=torch.__version__,
        python=platform.python_version(),
    )


def load_now() -> float | None:
    """How many processes have wanted a core in the last minute."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def find_cores(root: Path) -> Cores:
    """`root` is where the system's files are."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return Cores(os.cpu_count() or 1, affinity, _quota(root), granted_cores())


def _quota(root: Path) -> float | None:
    quota, period = (*_read(root, QUOTA_V2).split(), "", "")[:2]
    if not quota:
        quota, period = (_read(root, name).strip() for name in QUOTA_V1)
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def find_memory(root: Path) -> Memory:
    """`root` is where the system's files are."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read(root, "proc/meminfo"), re.MULTILINE))
    total, available = (int(found[name]) * 1024 if name in found else None for name in ("MemTotal", "MemAvailable"))
    limits = [int(text) for name in LIMITS if (text := _read(root, name).strip()).isdecimal()]
    return Memory(total, available, next((one for one in limits if one < NO_LIMIT_BYTES), None), _peak_bytes())


def _peak_bytes() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def find_driver(root: Path, nvml: Any) -> str | None:
    """The version of NVIDIA's driver, by its library or by its own file; None where there is none."""
    if nvml is not None:
        return str(nvml.nvmlSystemGetDriverVersion())
    found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", _read(root, DRIVER))
    return found[1] if found else None


def _cpu_name(root: Path) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _read(root, "proc/cpuinfo"), re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def _read(root: Path, name: str) -> str:
    """A small file of the system's; empty where it cannot be read."""
    try:
        return (root / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cards(nvml: Any) -> list[Card]:
    if not torch.cuda.is_available():
        return []
    return [_card(number, nvml) for number in range(torch.cuda.device_count())]


def _card(number: int, nvml: Any) -> Card:
    properties = torch.cuda.get_device_properties(number)
    free, total = torch.cuda.mem_get_info(number)
    uuid = f"GPU-{properties.uuid}"
    return Card(
        logical=number,
        name=properties.name,
        uuid=uuid,
        capability=f"{properties.major}.{properties.minor}",
        physical=None if nvml is None else physical_number(nvml, uuid),
        total_bytes=total,
        free_bytes=free,
        peak_bytes=torch.cuda.max_memory_allocated(number),
    )


def open_nvml() -> Any:
    """NVIDIA's management library, ready; None where it is missing or finds no driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # not installed, no driver, no permission: there is an error class for each
        return None
    return pynvml


def physical_number(nvml: Any, uuid: str) -> int | None:
    """The number that nvidia-smi gives the card with this id; None where the library does not know it."""
    try:
        return int(nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(uuid)))
    except Exception:  # a part of a card (MIG) has no number of its own
        return None
