"""An event loop whose clock jumps to the next timer: an hour of waiting takes no time and always goes the same way."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """Time stands still while anything is ready to run, and jumps when nothing is."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualClockLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("Every task waits and no timer is set: this would hang for ever.")
        self._loop.jump(timeout)
        return []  # what another thread calls comes through the loop's own queue; sockets have no place here


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a fresh loop with a virtual clock."""
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(main)


def now() -> float:
    """The running loop's clock, for a batcher's bill."""
    return asyncio.get_running_loop().time()
