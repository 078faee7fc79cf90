"""Figures of NVIDIA cards, from a library of the tests' own in place of NVML."""

import asyncio
from types import SimpleNamespace
from typing import Any

from structlog.testing import capture_logs

from app.cards import EVERY_S, Cards, Figures
from app.metrics import Metrics
from tests.server import metric_in
from tests.virtual_clock import VirtualClockLoop


class Nvml:
    """Two cards; the second cannot be read after its third time."""

    def __init__(self) -> None:
        self.reads = 0

    def nvmlInit(self) -> None:  # noqa: N802  # NVML's names
        self.reads = 0

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802
        self.reads += 1
        if self.reads > 6:
            raise RuntimeError("GPU is lost")
        return SimpleNamespace(used=10 if handle == "GPU-a" else 20, total=100)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=50)


class InlineLoop(VirtualClockLoop):
    """What belongs on another thread is done at once."""

    def run_in_executor(self, executor: Any, function: Any, *args: Any) -> Any:  # type: ignore[override]
        answer = self.create_future()
        try:
            answer.set_result(function(*args))
        except Exception as error:
            answer.set_exception(error)
        return answer


def test_cards_are_read_again_and_again_until_they_cannot_be() -> None:
    told: list[tuple[int, Figures]] = []
    with capture_logs() as lines, asyncio.Runner(loop_factory=InlineLoop) as runner:
        cards = Cards(lambda number, figures: told.append((number, figures)), Nvml())
        runner.run(cards.run(["GPU-a", "GPU-b"]))
        assert runner.get_loop().time() == 3 * EVERY_S
    assert told == [(0, Figures(10, 100, 0.5)), (1, Figures(20, 100, 0.5))] * 3
    assert "GPU is lost" in lines[0]["reason"]


def test_figures_of_a_card_are_gauges() -> None:
    metrics = Metrics("1")
    metrics.card_read(1, Figures(10, 100, 0.25))
    text = metrics.text().decode()
    assert metric_in(text, 'convoy_device_memory_bytes{device="1",kind="used"}') == 10
    assert metric_in(text, 'convoy_device_memory_bytes{device="1",kind="total"}') == 100
    assert metric_in(text, 'convoy_device_utilisation_ratio{device="1"}') == 0.25
