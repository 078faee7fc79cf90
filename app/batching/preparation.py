"""The stage before the queue: items of many requests are made ready for the workers in one call, off the event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from app.batching.queue import TicketQueue
from app.batching.ticket import Batch, Prepared, Ticket
from app.errors import ConvoyError, InvalidInput, WorkerDied

Prepare = Callable[[list[Any]], Awaitable[Sequence[Prepared | ConvoyError]]]
"""Makes items ready for a worker: for each, what a worker takes and its tokens, or why its request is refused."""

PrepareHere = Callable[[list[Any]], Sequence[Prepared | ConvoyError]]
"""The same, on the event loop; must take microseconds for one small item, and never raise."""

SMALL = 512
"""One item of at most this size is prepared on the event loop when nothing waits: the way to another thread and back
takes longer than the work."""
MAX_ITEMS = 256
MAX_SIZE = 262_144
"""Bounds of one call, in items and in the sizes they were submitted with, so that no list holds up the requests after
it for long."""


class Preparation:
    """Takes tickets as they come; hands on those whose items are all prepared, and those that are refused."""

    def __init__(
        self,
        prepare: Prepare,
        here: PrepareHere | None,
        *,
        hand_on: Callable[[list[Ticket[Any]]], None],
        refuse: Callable[[Ticket[Any], Exception], None],
    ) -> None:
        self._prepare = prepare
        self._here = here
        self._busy = False
        self._hand_on = hand_on
        self._refuse = refuse
        self._queue = TicketQueue()
        self._arrival = asyncio.Event()

    def put(self, ticket: Ticket[Any]) -> None:
        """Prepare this one too; at once, where it is small and nothing is being prepared."""
        if self._here is not None and not self._busy and len(ticket.payloads) == 1 and ticket.tokens[0] <= SMALL:
            batch = Batch([(ticket, 0)], list(ticket.payloads), ticket.tokens[0])
            self._share_out(batch, self._here(batch.payloads))
            return
        self._queue.put(ticket)
        self._busy = True
        self._arrival.set()

    def discard(self, ticket: Ticket[Any]) -> None:
        """Its request has ended; what is left of it need not be prepared."""
        self._queue.discard(ticket)

    async def run(self) -> None:
        """Prepare whatever has come, all of it in one call, again and again; raises WorkerDied when that is over."""
        while True:
            while not self._queue:
                self._busy = False
                self._arrival.clear()
                await self._arrival.wait()
            batch = self._queue.take(MAX_ITEMS, MAX_SIZE)
            try:
                outcomes = await self._prepare(batch.payloads)
            except WorkerDied:
                raise
            except Exception as error:
                for ticket in batch.tickets():
                    self._refuse(ticket, error)
            else:
                self._share_out(batch, outcomes)

    def _share_out(self, batch: Batch, outcomes: Sequence[Prepared | ConvoyError]) -> None:
        for (ticket, index), outcome in zip(batch.owners, outcomes, strict=True):
            if isinstance(outcome, Prepared):
                ticket.prepared.append(outcome)
            else:
                if isinstance(outcome, InvalidInput):
                    outcome.index = index
                self._refuse(ticket, outcome)
        complete = [ticket for ticket in batch.tickets() if len(ticket.prepared) == ticket.missing]
        self._hand_on([ticket for ticket in complete if not ticket.future.done()])
