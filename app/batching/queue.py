"""Requests in order of arrival, and the next batch from among them."""

from collections import OrderedDict
from typing import Any

from app.batching.ticket import Batch, Ticket


class TicketQueue:
    """Tickets whose items wait; the batcher bounds how many."""

    def __init__(self) -> None:
        self._tickets: OrderedDict[Ticket[Any], None] = OrderedDict()
        self.items = 0
        self.tokens = 0

    def __len__(self) -> int:
        """Requests with items waiting."""
        return len(self._tickets)

    @property
    def oldest_arrival(self) -> float:
        """When the request at the head arrived."""
        return next(iter(self._tickets)).arrived

    def put(self, ticket: Ticket[Any]) -> None:
        """Add all items of a ticket."""
        self._tickets[ticket] = None
        self.items += len(ticket.payloads)
        self.tokens += sum(ticket.tokens)

    def discard(self, ticket: Ticket[Any]) -> None:
        """Remove what is left of a ticket that has ended, if anything is."""
        if ticket in self._tickets:
            del self._tickets[ticket]
            self.items -= len(ticket.payloads) - ticket.next_index
            self.tokens -= sum(ticket.tokens[ticket.next_index :])

    def take(self, max_items: int, max_tokens: int) -> Batch:
        """The next batch in order of arrival: at most `max_items` items, and at most `max_tokens` tokens unless the
        first item alone is larger."""
        owners: list[tuple[Ticket[Any], int]] = []
        payloads: list[Any] = []
        tokens = 0
        while self._tickets and len(payloads) < max_items:
            ticket = next(iter(self._tickets))
            size = ticket.tokens[ticket.next_index]
            if payloads and tokens + size > max_tokens:
                break
            owners.append((ticket, ticket.next_index))
            payloads.append(ticket.payloads[ticket.next_index])
            tokens += size
            ticket.next_index += 1
            if ticket.next_index == len(ticket.payloads):
                del self._tickets[ticket]
        self.items -= len(payloads)
        self.tokens -= tokens
        return Batch(owners, payloads, tokens)

    def fills(self, max_items: int, max_tokens: int) -> bool:
        """Whether what waits is enough for a full batch."""
        return self.items >= max_items or self.tokens >= max_tokens
