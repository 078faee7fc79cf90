"""The machine that a test ran on: figures mean nothing without it."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import psutil


def describe() -> dict[str, str]:
    """In words, for people: processor, cores, memory, GPU, system, load before the test."""
    one, five, _ = os.getloadavg()
    facts = {
        "processor": _processor(),
        "cores": f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} usable",
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "GPU": _gpus(),
        "system": platform.platform(),
        "Python": platform.python_version(),
        "load before the test": f"{one:.2f} in the last minute, {five:.2f} in the last five",
    }
    return {name: value for name, value in facts.items() if value}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _gpus() -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "; ".join(done.stdout.split("\n")).strip("; ") if done.returncode == 0 else ""
