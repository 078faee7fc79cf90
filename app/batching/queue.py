"""The bounded queue of tickets: places are reserved before any work, and given back the moment they are free."""

from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self

from app.batching.ticket import Batch, P, R, Ticket
from app.errors import QueueFull


class Reservation:
    """Places in the queue held for one request until it submits, or leaves; use as a context manager."""

    __slots__ = ("_give_back", "_items")

    def __init__(self, items: int, give_back: Callable[[int], None]) -> None:
        self._items = items
        self._give_back = give_back

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give the places back; doing so twice is harmless."""
        items, self._items = self._items, 0
        if items:
            self._give_back(items)


class TicketQueue(Generic[P, R]):
    """Tickets in order of arrival, bounded in items.

    An item counts from its reservation until it is dispatched or its request has ended.
    """

    def __init__(self, max_items: int) -> None:
        self._max_items = max_items
        self._tickets: OrderedDict[Ticket[P, R], None] = OrderedDict()
        self.reserved = 0
        self.items = 0
        self.tokens = 0

    def __len__(self) -> int:
        """Requests with items waiting."""
        return len(self._tickets)

    @property
    def oldest_arrival(self) -> float:
        """When the request at the head arrived."""
        return next(iter(self._tickets)).arrived

    def reserve(self, items: int, retry_after_s: float) -> None:
        """Hold places for `items` items, all of them or none; `unreserve` gives them back.

        Raises QueueFull where they would not fit.
        """
        free = self._max_items - self.items - self.reserved
        if items > free:
            raise QueueFull(
                f"The queue has room for {free} more items and this request brings {items} "
                f"(limit {self._max_items}, --max-queue-items); try again in a moment.",
                retry_after_s=retry_after_s,
            )
        self.reserved += items

    def unreserve(self, items: int) -> None:
        """Give back places that were reserved."""
        self.reserved -= items

    def put(self, ticket: Ticket[P, R]) -> None:
        """Queue a ticket; its places must be reserved, and the reservation released, by the caller."""
        self._tickets[ticket] = None
        self.items += ticket.waiting
        self.tokens += sum(ticket.tokens)

    def discard(self, ticket: Ticket[P, R]) -> None:
        """Free the places of a request that has ended; what it has with a worker is not touched."""
        if ticket in self._tickets:
            del self._tickets[ticket]
            self.items -= ticket.waiting
            self.tokens -= sum(ticket.tokens[ticket.next_index :])

    def take(self, max_items: int, max_tokens: int) -> Batch[P, R]:
        """The next batch in order of arrival: at most `max_items` items, and at most `max_tokens` tokens unless the
        first item alone is larger."""
        owners: list[tuple[Ticket[P, R], int]] = []
        payloads: list[P] = []
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
            if ticket.waiting == 0:
                del self._tickets[ticket]
        self.items -= len(payloads)
        self.tokens -= tokens
        return Batch(owners, payloads, tokens)

    def tickets(self) -> list[Ticket[P, R]]:
        """All that wait, in order of arrival."""
        return list(self._tickets)

    def fills(self, max_items: int, max_tokens: int) -> bool:
        """Whether what waits is enough for a full batch."""
        return self.items >= max_items or self.tokens >= max_tokens
