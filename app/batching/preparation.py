"""The stage before the lanes: items of many requests are made ready for the workers in one call, off the event loop."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from app.batching.facts import LANES, LaneName
from app.batching.ticket import Prepared, Ticket
from app.batching.work import Work
from app.errors import ConvoyError, WorkerDied

Prepare = Callable[[list[Any]], Awaitable[Sequence[Prepared | ConvoyError]]]
"""Makes items ready for a worker: for each, what a worker takes and its tokens, or why its request is refused."""

PrepareHere = Callable[[list[Any]], Sequence[Prepared | ConvoyError]]
"""The same, on the event loop; must take microseconds for one small item, and never raise."""

SMALL_TOKENS = 128
"""One item of about so many tokens is prepared on the event loop when nothing interactive waits for preparation: the
way to another thread and back takes longer than the work."""
MAX_ITEMS = 128
MAX_TOKENS = 16_384
"""Bounds of one call, so that no list holds up the requests after it for long."""
TURN_ITEMS = 32
"""A list gives up its turn after so many items."""


class Preparation:
    """Takes requests as they come, interactive ones first, lists in turns, and reports each item's outcome."""

    def __init__(
        self,
        prepare: Prepare,
        here: PrepareHere | None,
        *,
        report: Callable[[Sequence[tuple[Work, Prepared | ConvoyError]]], None],
        watchdog_s: float | None,
    ) -> None:
        """`report` takes what became of each item; a call that takes longer than `watchdog_s` is given up."""
        self._prepare = prepare
        self._here = here
        self._report = report
        self._watchdog_s = watchdog_s
        self._waiting: dict[LaneName, OrderedDict[Ticket[Any], None]] = {lane: OrderedDict() for lane in LANES}
        self._arrival = asyncio.Event()
        self._lane_at_work: LaneName | None = None

    def put(self, ticket: Ticket[Any]) -> None:
        """Prepare this request too; at once, where it is one small item and no other of its kind is before it."""
        if self._here is not None and self._is_small(ticket) and not self._is_busy:
            (work,) = ticket.works
            self._report([(work, self._here([work.payload])[0])])
            return
        self._waiting[ticket.lane][ticket] = None
        self._arrival.set()

    def discard(self, ticket: Ticket[Any]) -> None:
        """This request has ended; what is left of it need not be prepared."""
        self._waiting[ticket.lane].pop(ticket, None)

    async def run(self) -> None:
        """Prepare whatever has come, again and again; raises WorkerDied when that is over."""
        while True:
            while not any(self._waiting.values()):
                self._lane_at_work = None
                self._arrival.clear()
                await self._arrival.wait()
            self._lane_at_work = "interactive" if self._waiting["interactive"] else "bulk"
            works = self._next(self._waiting[self._lane_at_work])
            if works:
                self._report(list(zip(works, await self._outcomes(works), strict=True)))

    async def _outcomes(self, works: list[Work]) -> Sequence[Prepared | ConvoyError]:
        try:
            async with asyncio.timeout(self._watchdog_s):
                return await self._prepare([work.payload for work in works])
        except TimeoutError as error:
            raise WorkerDied(f"Preparing inputs has taken longer than {self._watchdog_s:g} s.") from error
        except WorkerDied:
            raise
        except ConvoyError as error:
            return [error] * len(works)

    @staticmethod
    def _next(waiting: "OrderedDict[Ticket[Any], None]") -> list[Work]:
        """What is not prepared yet of the requests whose turn it is."""
        works: dict[Work, None] = {}
        tokens = 0
        while waiting and len(works) < MAX_ITEMS and tokens < MAX_TOKENS:
            ticket = next(iter(waiting))
            end = min(ticket.next_unprepared + TURN_ITEMS, len(ticket.works))
            for work in ticket.works[ticket.next_unprepared : end]:
                if not work.prepared and work not in works:
                    works[work] = None
                    tokens += work.tokens
            ticket.next_unprepared = end
            waiting.move_to_end(ticket)
            if end == len(ticket.works):
                del waiting[ticket]
        return list(works)

    @property
    def _is_busy(self) -> bool:
        """Whether something interactive is prepared, or waits for it."""
        return self._lane_at_work == "interactive" or bool(self._waiting["interactive"])

    @staticmethod
    def _is_small(ticket: Ticket[Any]) -> bool:
        return ticket.missing == 1 and ticket.lane == "interactive" and ticket.tokens <= SMALL_TOKENS
