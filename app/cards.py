"""Cards: what NVIDIA's management library says of the GPUs in use."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import structlog

log = structlog.get_logger(__name__)

EVERY_S = 5.0


class Figures(NamedTuple):
    """One card: bytes of its memory that anybody uses, and all of it; and the share of the last moments, a sixth of a
    second to one, in which any kernel ran on it, however small."""

    used_bytes: int
    total_bytes: int
    utilisation: float


class Cards:
    """Reads the cards every few seconds, on another thread, since a driver may take its time."""

    def __init__(self, report: Callable[[int, Figures], None], nvml: Any = None) -> None:
        """`report` is told the number of a card among those in use, and its figures. `nvml` is the library's module, by
        default that of the extra `gpu`."""
        self._report = report
        self._nvml = nvml

    async def run(self, uuids: Sequence[str]) -> None:
        """Watch the cards with these ids for ever; returns where the library is missing, or cannot read them."""
        try:
            handles = await asyncio.to_thread(self._open, uuids)
            while True:
                for number, figures in enumerate(await asyncio.to_thread(self._read, handles)):
                    self._report(number, figures)
                await asyncio.sleep(EVERY_S)
        except Exception as error:  # no driver, no permission, a card that was reset: there is an error class for each
            log.info("memory and utilisation of the cards are not measured", reason=str(error))

    def _open(self, uuids: Sequence[str]) -> list[Any]:
        if self._nvml is None:
            import pynvml

            self._nvml = pynvml
        self._nvml.nvmlInit()
        return [self._nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]

    def _read(self, handles: Sequence[Any]) -> list[Figures]:
        found = []
        for handle in handles:
            memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
            busy = self._nvml.nvmlDeviceGetUtilizationRates(handle)
            found.append(Figures(memory.used, memory.total, busy.gpu / 100))
        return found
