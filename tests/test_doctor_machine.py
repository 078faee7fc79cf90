"""The doctor's facts of a machine: which card is which, cores, memory, driver and number types, from values made up."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from app.doctor.cards import Card, explain_cards
from app.doctor.machine import find_cores, find_driver, find_machine, find_memory, physical_number
from app.doctor.number_types import find_number_types, on_cpu
from app.vectorizers.devices import granted_cores


def card(logical: int, name: str = "NVIDIA H200", physical: int | None = None) -> Card:
    return Card(logical, name, f"GPU-{logical}{logical}", "9.0", physical, 150 * 2**30, 140 * 2**30, 2**30)


def explained(cards: Sequence[Card], visible: str | None, order: str | None = None) -> str:
    return " ".join(explain_cards(cards, visible, order, cuda="13.0"))


def test_each_card_is_named_with_its_id_and_the_number_that_nvidia_smi_gives_it() -> None:
    words = explained([card(0, physical=3), card(1)], "3,5", "PCI_BUS_ID")
    assert "cuda:0 is NVIDIA H200, number 3 in nvidia-smi, GPU-00." in words
    assert "cuda:1 is NVIDIA H200, GPU-11." in words


def test_visible_devices_renumber_and_the_order_says_what_their_numbers_mean() -> None:
    words = explained([card(0), card(1)], " 3, 5 ", "PCI_BUS_ID")
    assert "cuda:0 is its entry 3, cuda:1 is its entry 5" in words
    assert "CUDA counts the cards as nvidia-smi does" in words
    for order, said in (
        (None, "is not set"),
        ("FASTEST_FIRST", "=FASTEST_FIRST"),
        ("pci", "=pci, which CUDA does not"),
    ):
        words = explained([card(0), card(1)], "3,5", order)
        assert f"CUDA_DEVICE_ORDER{' ' if order is None else ''}{said}" in words
        assert "the same number may mean two cards" in words


def test_entries_after_one_that_cuda_does_not_know_are_named_as_lost() -> None:
    words = explained([card(0)], "1,9,0")
    assert "CUDA took 1 of its 3 entries: it stops at the first that names no card, here 9." in words


def test_entries_after_one_below_zero_do_not_count() -> None:
    words = explained([card(0)], "1,-1,0", "PCI_BUS_ID")
    assert "cuda:0 is its entry 1." in words
    assert "of its" not in words


def test_ids_need_no_order() -> None:
    words = explained([card(0), card(1)], "GPU-aa,GPU-bb")
    assert "mean the same card whatever CUDA_DEVICE_ORDER says" in words


def test_one_card_that_nobody_chose_leaves_no_order_to_mistake() -> None:
    words = explained([card(0)], None)
    assert "CUDA_VISIBLE_DEVICES is not set: this process sees every card." in words
    assert "with one card there is no order to mistake" in words


@pytest.mark.parametrize(
    ("visible", "cuda", "reason"),
    [
        (None, None, "torch is built without CUDA"),
        ("", "13.0", "is set and empty, which hides all of them"),
        ("-1", "13.0", "CUDA_VISIBLE_DEVICES=-1 names none, which hides all of them"),
        ("7", "13.0", "CUDA_VISIBLE_DEVICES=7 names none that is there"),
        (None, "13.0", "is there a driver?"),
    ],
)
def test_why_there_is_no_card(visible: str | None, cuda: str | None, reason: str) -> None:
    (sentence,) = explain_cards([], visible, None, cuda=cuda)
    assert reason in sentence


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_a_quota_is_read_from_either_version_of_cgroups(tmp_path: Path) -> None:
    assert find_cores(tmp_path).quota is None
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert find_cores(tmp_path).quota == 0.5
    put(tmp_path, "sys/fs/cgroup/cpu.max", "150000 100000\n")
    assert find_cores(tmp_path).quota == 1.5
    put(tmp_path, "sys/fs/cgroup/cpu.max", "max 100000\n")
    assert find_cores(tmp_path).quota is None
    assert find_cores(tmp_path).granted == granted_cores()


def test_memory_is_that_of_the_host_and_of_the_cgroup(tmp_path: Path) -> None:
    empty = find_memory(tmp_path)
    assert (empty.total_bytes, empty.available_bytes, empty.limit_bytes) == (None, None, None)
    put(
        tmp_path,
        "proc/meminfo",
        "MemTotal:       2048 kB\nMemFree: 1 kB\nMemAvailable:    1024 kB\nHugePages_Total: 0\n",
    )
    put(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    found = find_memory(tmp_path)
    assert (found.total_bytes, found.available_bytes, found.limit_bytes) == (2 * 2**20, 2**20, None)
    put(tmp_path, "sys/fs/cgroup/memory.max", "1000000\n")
    assert find_memory(tmp_path).limit_bytes == 1_000_000
    assert found.peak_bytes is not None
    assert found.peak_bytes > 2**20, "kilobytes were taken for bytes"


class Nvml:
    """NVIDIA's library, which knows one card."""

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802  # NVML's names
        return "580.1"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != "GPU-a":
            raise LookupError(uuid)
        return uuid

    def nvmlDeviceGetIndex(self, handle: str) -> int:  # noqa: N802
        return 3


def test_the_driver_is_asked_of_its_library_or_read_from_its_file(tmp_path: Path) -> None:
    assert find_driver(tmp_path, None) is None
    put(
        tmp_path,
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12\n",
    )
    assert find_driver(tmp_path, None) == "550.54.15"
    assert find_driver(tmp_path, Nvml()) == "580.1"
    put(
        tmp_path,
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Rel\n",
    )
    assert find_driver(tmp_path, None) == "570.86.10"


def test_a_card_that_the_library_does_not_know_has_no_number() -> None:
    assert physical_number(Nvml(), "GPU-a") == 3
    assert physical_number(Nvml(), "MIG-b") is None


def test_cards_are_told_with_what_torch_and_the_library_say(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(name="NVIDIA A", uuid="a", major=8, minor=6)
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_properties": lambda number: properties,
        "mem_get_info": lambda number: (5, 9),
        "max_memory_allocated": lambda number: 4,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    machine = find_machine("3", "PCI_BUS_ID", 0.5, Nvml())
    assert machine.cards == [Card(0, "NVIDIA A", "GPU-a", "8.6", 3, 9, 5, 4)]
    assert machine.driver == "580.1"
    assert "cuda:0 is its entry 3" in " ".join(machine.cards_explained)


def test_number_types_of_a_cpu_are_what_its_parts_say() -> None:
    found = on_cpu({"avx512_bf16": True, "amx_bf16": True, "amx_fp16": False})
    assert found["bfloat16"] == (True, "the CPU has avx512_bf16 and amx_bf16")
    assert found["float16"] == (False, "the CPU has neither avx512_fp16 nor amx_fp16")


def test_types_in_hardware_are_compared_with_float32_and_others_are_not() -> None:
    for one in find_number_types(torch.device("cpu")):
        assert (one.times_float32 is not None) == one.in_hardware
        assert one.times_float32 is None or one.times_float32 > 0


@pytest.mark.parametrize(("capability", "bfloat16"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_number_types_of_a_card_are_what_its_capability_says(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], bfloat16: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr("app.doctor.number_types._gains", lambda device, names: dict.fromkeys(names, 2.0))
    found = {one.name: one for one in find_number_types(torch.device("cuda:0"))}
    assert (found["float16"].in_hardware, found["bfloat16"].in_hardware) == (True, bfloat16)
    assert found["bfloat16"].times_float32 == (2.0 if bfloat16 else None)
