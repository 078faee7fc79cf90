"""The batch: what travels together, and the requests that it belongs to."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from app.batching.facts import Departure, LaneName
from app.batching.ticket import Ticket
from app.batching.work import Work


class Limits(NamedTuple):
    """The most that one batch may hold."""

    items: int
    tokens: int


class Batch:
    """Is filled from the lanes, leaves with a worker, and comes back."""

    __slots__ = ("bulk_held", "cut", "departure", "limits", "tickets", "tokens", "works")

    def __init__(self, limits: Limits, *, bulk_held: bool = False) -> None:
        """`bulk_held`: bulk gets no more of it than it is owed."""
        self.limits = limits
        self.bulk_held = bulk_held
        self.cut = False
        """Whether some were put back for the sake of others' deadlines."""
        self.works: list[Work] = []
        self.tokens = 0
        self.tickets: dict[Ticket[Any], None] = {}
        """Each once, in the order in which they came aboard."""
        self.departure: Departure
        """What is known of it since it left."""

    def add(self, work: Work) -> None:
        """Take this one along."""
        work.batch = self
        self.works.append(work)
        self.tokens += work.tokens

    def keep(self, works: Sequence[Work]) -> list[Work]:
        """Take only these along; returns the others, the last first."""
        self.cut = True
        kept = set(works)
        left = [work for work in reversed(self.works) if work not in kept]
        for work in left:
            work.batch = None
        self.works = list(works)
        self.tokens = sum([work.tokens for work in works])
        return left

    def leave(self, now: float, departure: Departure) -> None:
        """It is dispatched."""
        self.departure = departure
        for ticket in self.tickets:
            ticket.boarded(now, departure)

    def board(self, ticket: Ticket[Any], now: float) -> None:
        """One more request waits for a row of it, while it is on its way."""
        self.tickets[ticket] = None
        ticket.boarded(now, self.departure)

    def came_back(self, now: float) -> None:
        """It is done with, whatever became of it."""
        for ticket in self.tickets:
            ticket.returned(now)

    @property
    def tags(self) -> list[object]:
        """What its requests were submitted with."""
        return [ticket.tag for ticket in self.tickets if ticket.tag is not None]

    def by_lane(self) -> Iterable[tuple[LaneName, list[Ticket[Any]]]]:
        """The requests of each lane that has any."""
        by_lane: dict[LaneName, list[Ticket[Any]]] = {}
        for ticket in self.tickets:
            by_lane.setdefault(ticket.lane, []).append(ticket)
        return by_lane.items()
