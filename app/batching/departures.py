"""Departures: the number of each batch, why it holds no more, and what its requests waited for."""

from collections.abc import Callable, Sequence
from typing import Any

from app.batching.batch import Batch
from app.batching.facts import NO_BATCH, Cause, Closed, Departure
from app.batching.lanes import Lanes
from app.batching.ticket import Ticket

ComputedTokens = Callable[[Sequence[int]], int]
"""The tokens that a model computes for items of these sizes, padding included; must take microseconds."""


class Departures:
    """Keeps the list of departures, as far as the last one."""

    def __init__(self, lanes: Lanes, computed_tokens: ComputedTokens) -> None:
        self.delayed = False
        """Whether the next batch has been held for more to come."""
        self._lanes = lanes
        self._computed_tokens = computed_tokens
        self._last = NO_BATCH

    def awaited_by(self, ticket: Ticket[Any], *, may_go: bool) -> None:
        """This request waits from now on; `may_go`: a worker could take it at once."""
        ticket.seen = self._last.number
        ticket.cause = "nothing" if may_go else "device"

    def left(self, batch: Batch, now: float, predicted_s: float) -> Departure:
        """The next batch leaves now, and nobody has been told yet; says what is to be known of it."""
        for ticket in batch.tickets:
            ticket.cause = self._cause(ticket)
        self._last = Departure(
            now,
            self._last.number + 1,
            len(batch.works),
            batch.tokens,
            self._computed_tokens([work.tokens for work in batch.works]),
            batch.limits.tokens,
            self._closed(batch),
            predicted_s,
            self._lanes.items,
        )
        return self._last

    def _closed(self, batch: Batch) -> Closed:
        if batch.cut:
            return "deadline"
        if not self._lanes:
            return "drained"
        if len(batch.works) >= batch.limits.items:
            return "items"
        if batch.bulk_held and not self._lanes.interactive.ready_items:
            return "lane"
        return "tokens"

    def _cause(self, ticket: Ticket[Any]) -> Cause:
        """A request that batches have left without, or without all of it, waited for what closed the last of them."""
        if self._last.number > ticket.seen:
            return "lane" if self._last.closed in ("lane", "deadline") else "budget"
        return "growth" if self.delayed and ticket.cause == "nothing" else ticket.cause
