"""Deadlines of many requests on few timers."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

RESOLUTION_S = 0.005
"""Deadlines this close together share a timer; none comes early, and none later than this."""


class Deadlines(Generic[T]):
    """Calls `due` with each thing whose deadline has come, unless it was taken back before.

    Nearly every deadline is taken back before it comes, so a timer for each request would be work for nothing: they
    are gathered in slots of `RESOLUTION_S`, each with one timer.
    """

    def __init__(self, due: Callable[[T], None]) -> None:
        self._due = due
        self._slots: dict[int, set[T]] = {}

    def add(self, thing: T, deadline: float) -> int:
        """Watch a deadline, in seconds of the event loop's clock; returns the slot, for `remove`."""
        slot = int(deadline / RESOLUTION_S) + 1
        things = self._slots.get(slot)
        if things is None:
            things = self._slots[slot] = set()
            asyncio.get_running_loop().call_at(slot * RESOLUTION_S, self._come, slot)
        things.add(thing)
        return slot

    def remove(self, thing: T, slot: int) -> None:
        """Take a deadline back; harmless where it has come already."""
        things = self._slots.get(slot)
        if things is not None:
            things.discard(thing)

    def _come(self, slot: int) -> None:
        for thing in self._slots.pop(slot):
            self._due(thing)
