"""What a server process holds in memory, on Linux."""

import re
from pathlib import Path

import pytest

from tests.server import RunningServer


class Memory:
    """Resident bytes of a server; the test is skipped where the kernel does not tell."""

    def __init__(self, server: RunningServer) -> None:
        self._folder = Path(f"/proc/{server.process.pid}")
        if not (self._folder / "clear_refs").exists():
            pytest.skip("this needs /proc")

    def now(self) -> int:
        return self._kilobytes("VmRSS") * 1024

    def forget_peak(self) -> None:
        (self._folder / "clear_refs").write_text("5")

    def peak(self) -> int:
        """The most since it was forgotten."""
        return self._kilobytes("VmHWM") * 1024

    def _kilobytes(self, name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", (self._folder / "status").read_text())
        assert found
        return int(found[1])
