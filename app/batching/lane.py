"""One lane: requests whose items wait, taking turns."""

import math
from collections import OrderedDict
from typing import Any

from app.batching.batch import Batch, Limits
from app.batching.ticket import Ticket
from app.batching.work import Work

TURN_TOKENS = 32
"""A request gives up its turn after so many tokens: about a query. What a longer text takes beyond that, it waits for
later: each turn adds as much again, and the next item needs something left."""


class Lane:
    """Requests in order of arrival. A long list does not stand before later requests as a block: it takes turns with
    them, each turn worth about the same number of tokens."""

    def __init__(self) -> None:
        self._turns: OrderedDict[Ticket[Any], None] = OrderedDict()
        self.requests = 0
        """Requests with items that are not dispatched; `items` and `tokens` are theirs."""
        self.items = 0
        self.tokens = 0
        """As estimated until they are prepared."""
        self.ready_items = 0
        """Of these, the items of requests that are prepared and wait here; so with `ready_tokens`."""
        self.ready_tokens = 0
        self.ready_requests = 0

    @property
    def oldest_arrival(self) -> float:
        """When the request arrived that has been here longest; infinity where there is none."""
        return min([ticket.arrived for ticket in self._turns], default=math.inf)

    def reserve(self, ticket: Ticket[Any]) -> None:
        """A request is accepted: its items have their places from now on."""
        self.requests += 1
        self.items += ticket.undispatched
        self.tokens += ticket.tokens

    def correct(self, ticket: Ticket[Any], tokens: int) -> None:
        """An item of it turned out to have so many tokens more than was estimated, or fewer."""
        ticket.tokens += tokens
        self.tokens += tokens

    def put(self, ticket: Ticket[Any]) -> None:
        """All items of this request are prepared: from here on they wait."""
        ticket.waiting = True
        ticket.credit = TURN_TOKENS
        self._turns[ticket] = None
        self.ready_items += ticket.undispatched
        self.ready_tokens += ticket.tokens
        self.ready_requests += 1

    def remove(self, ticket: Ticket[Any]) -> None:
        """Nothing of this request is to be dispatched any more."""
        if ticket.undispatched:
            self._forget(ticket, ticket.undispatched, ticket.tokens)

    def dispatched(self, ticket: Ticket[Any], tokens: int) -> None:
        """One item of this request, of so many tokens, waits no longer."""
        self._forget(ticket, 1, tokens)

    def _forget(self, ticket: Ticket[Any], items: int, tokens: int) -> None:
        self.items -= items
        self.tokens -= tokens
        if ticket.waiting:
            self.ready_items -= items
            self.ready_tokens -= tokens
        ticket.undispatched -= items
        ticket.tokens -= tokens
        if ticket.undispatched == 0:
            self.ready_requests -= ticket.waiting
            ticket.waiting = False
            self.requests -= 1
            self._turns.pop(ticket, None)

    def next(self) -> tuple[Ticket[Any], Work] | None:
        """Whose turn it is, and the item they would send."""
        turns = self._turns
        while turns:
            ticket = next(iter(turns))
            if ticket.credit <= 0:
                ticket.credit = ticket.credit + TURN_TOKENS if len(turns) > 1 else TURN_TOKENS
                turns.move_to_end(ticket)
                continue
            works = ticket.works
            while ticket.next_index < len(works) and works[ticket.next_index].batch is not None:
                ticket.next_index += 1
            if ticket.next_index < len(works):
                return ticket, works[ticket.next_index]
            del turns[ticket]
        return None

    def draw(self, batch: Batch, limits: Limits) -> None:
        """Put into a batch whatever comes next, as far as the limits of the whole batch allow; an item that is larger
        may go alone."""
        while len(batch.works) < limits.items and (found := self.next()) is not None:
            ticket, work = found
            if batch.works and batch.tokens + work.tokens > limits.tokens:
                return
            batch.add(work)
            ticket.credit -= work.tokens

    def put_back(self, ticket: Ticket[Any], index: int, tokens: int) -> None:
        """An item that was drawn stays after all; of several, the last drawn is the first to be put back."""
        ticket.next_index = min(ticket.next_index, index)
        ticket.credit += tokens
        self._turns[ticket] = None
        self._turns.move_to_end(ticket, last=False)
