"""The batch: what travels together, and the requests that it belongs to."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from app.batching.ticket import LaneName, Ticket
from app.batching.work import Work


class Limits(NamedTuple):
    """The most that one batch may hold."""

    items: int
    tokens: int


class Batch:
    """Is filled from the lanes, leaves with a worker, and comes back."""

    __slots__ = ("left_items", "tickets", "tokens", "works")

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.tokens = 0
        self.tickets: dict[Ticket[Any], None] = {}
        """Each once, in the order in which they came aboard."""
        self.left_items = 0
        """Items that waited on when it left."""

    def add(self, work: Work) -> None:
        """Take this one along."""
        work.batch = self
        self.works.append(work)
        self.tokens += work.tokens

    def keep(self, works: Sequence[Work]) -> list[Work]:
        """Take only these along; returns the others, the last first."""
        kept = set(works)
        left = [work for work in reversed(self.works) if work not in kept]
        for work in left:
            work.batch = None
        self.works = list(works)
        self.tokens = sum([work.tokens for work in works])
        return left

    def leave(self, now: float, left_items: int) -> None:
        """It is dispatched."""
        self.left_items = left_items
        for ticket in self.tickets:
            ticket.boarded(now, len(self.works), self.tokens)

    def board(self, ticket: Ticket[Any], now: float) -> None:
        """One more request waits for a row of it, while it is on its way."""
        self.tickets[ticket] = None
        ticket.boarded(now, len(self.works), self.tokens)

    def came_back(self, now: float) -> None:
        """It is done with, whatever became of it."""
        for ticket in self.tickets:
            ticket.returned(now)

    def by_lane(self) -> Iterable[tuple[LaneName, list[Ticket[Any]]]]:
        """The requests of each lane that has any."""
        by_lane: dict[LaneName, list[Ticket[Any]]] = {}
        for ticket in self.tickets:
            by_lane.setdefault(ticket.lane, []).append(ticket)
        return by_lane.items()
