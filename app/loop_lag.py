"""The event loop's lag: how late it is for its appointments, because something holds it up."""

import asyncio
import time
from collections.abc import Callable

EVERY_S = 0.02


class LoopLag:
    """Keeps appointments with the loop, and notes how late it was."""

    def __init__(self, report: Callable[[float], None]) -> None:
        """`report` is told each lateness, in seconds."""
        self._report = report
        self._longest_s = 0.0

    def take_longest_s(self) -> float:
        """The longest lateness since the last time this was asked, in seconds."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s

    async def run(self) -> None:
        """Watch for ever. The resolution is that of the loop's timers: a millisecond."""
        while True:
            due = time.perf_counter() + EVERY_S
            await asyncio.sleep(EVERY_S)
            late_s = max(0.0, time.perf_counter() - due)
            self._longest_s = max(self._longest_s, late_s)
            self._report(late_s)
