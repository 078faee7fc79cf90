"""Choosing the next batch: who goes, who can wait, and who can no longer be answered in time."""

import math
from collections.abc import Callable
from typing import Any

from app.batching.batch import Batch, Limits
from app.batching.lanes import Lanes
from app.batching.law import ServiceLaw
from app.batching.pool import Pool
from app.batching.ticket import Ticket
from app.batching.work import Work

AT_A_TIME = 4
"""A quarter of those that are late and in the way is dropped before the batch is looked at again."""


class Choice:
    """Fills batches from the lanes, by the law of service and everybody's deadlines.

    Who cannot be answered in time even alone is dropped before any work. Who could be, but not in the full batch, goes
    first if the others can wait for it; if they cannot, it is dropped, since a full batch answers more of them.
    """

    def __init__(self, lanes: Lanes, law: ServiceLaw, pool: Pool[Any], drop: Callable[[Ticket[Any]], None]) -> None:
        """`drop` ends a request whose deadline cannot be met."""
        self._lanes = lanes
        self._law = law
        self._pool = pool
        self._drop = drop

    def next_batch(self, now: float, limits: Limits, *, fill_with_bulk: bool = True) -> Batch | None:
        """The batch to dispatch now, within both limits; None where nothing is left that may go.

        Without `fill_with_bulk`, bulk gets no more of it than it is owed.
        """
        while True:
            batch = self._lanes.fill(limits, fill_with_bulk=fill_with_bulk)
            if not batch.works:
                return None
            late = self._late(batch, now, limits.tokens)
            if not late or self._settled(batch, late, now, limits.tokens):
                self._lanes.taken(batch)
                return batch

    def _settled(self, batch: Batch, late: list[Ticket[Any]], now: float, max_tokens: int) -> bool:
        """Make the batch one that can go; where that is not possible, drop who is in the way and put it back."""
        hopeless = [one for one in late if one.deadline < now + self._time_for(one.tokens, max_tokens)]
        if not hopeless:
            if self._sent_ahead(batch, late, now):
                return True
            hopeless = late[: -(-len(late) // AT_A_TIME)]
        elif len(hopeless) == len(self._tickets(batch)) and self._holds_all(batch):
            # Nobody is served by dropping the last one; and if the law is wrong, only a batch that runs can mend it.
            last = hopeless.pop()
            self._lanes.keep(batch, [work for work in batch.works if any(ticket is last for ticket, _ in work.items)])
            for ticket in hopeless:
                self._drop(ticket)
            return True
        self._lanes.keep(batch, ())
        for ticket in hopeless:
            self._drop(ticket)
        return False

    def _late(self, batch: Batch, now: float, max_tokens: int) -> list[Ticket[Any]]:
        """The requests that this batch would answer too late, the most urgent first."""
        batch_s = self._most_seconds(batch.tokens)
        late = [
            ticket
            for ticket in self._tickets(batch)
            if ticket.deadline < now + batch_s
            or (ticket.tokens > batch.tokens and ticket.deadline < now + self._time_for(ticket.tokens, max_tokens))
        ]
        return sorted(late, key=lambda ticket: ticket.deadline)

    def _sent_ahead(self, batch: Batch, late: list[Ticket[Any]], now: float) -> bool:
        """Whether the others can wait until the late ones are answered; then only these are left in the batch, and as
        many more as do not delay them."""
        is_late = set(late)

        def urgency(work: Work) -> float:
            return min([ticket.deadline for ticket, _ in work.items if ticket in is_late], default=math.inf)

        going: list[Work] = []
        tokens = 0
        for work in sorted(batch.works, key=urgency):
            if going and now + self._most_seconds(tokens + work.tokens) > late[0].deadline:
                break
            going.append(work)
            tokens += work.tokens
        then = now + self._most_seconds(tokens) + self._most_seconds(batch.tokens)
        aboard = {ticket for work in going for ticket, _ in work.items}
        if any(ticket.deadline < then for ticket in self._tickets(batch) if ticket not in aboard):
            return False
        self._lanes.keep(batch, going)
        return True

    def _time_for(self, tokens: int, max_tokens: int) -> float:
        """How long so many tokens take if they go now and alone, in seconds."""
        if tokens <= max_tokens:
            return self._most_seconds(tokens)
        batches = tokens / max_tokens / self._pool.parallel
        return max(self._most_seconds(max_tokens), self._law.most_seconds(max_tokens) * batches)

    def _most_seconds(self, tokens: int) -> float:
        """How long a batch takes that goes now, with an allowance for the usual error, in seconds."""
        return self._law.most_seconds(tokens) * self._pool.slowdown

    def _holds_all(self, batch: Batch) -> bool:
        """Whether nobody waits who is not in this batch, with some of their items at least."""
        waiting = self._lanes.interactive.ready_requests + self._lanes.bulk.ready_requests
        return len(self._tickets(batch)) >= waiting

    @staticmethod
    def _tickets(batch: Batch) -> dict[Ticket[Any], None]:
        return dict.fromkeys([ticket for work in batch.works for ticket, _ in work.items if ticket.waiting])
