"""A request's place in the batcher, and the batch that carries its items."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

P = TypeVar("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Rows(Protocol[R_co]):
    """What a worker returns: one row for each item, as a list or as a matrix."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[R_co]: ...


@dataclass(frozen=True, slots=True)
class Answer(Generic[R]):
    """The rows of one request, in the order of its items, and where their time went.

    `queue_s` and `run_s` share out the time from submission to the last row: `run_s` is the time in which at least
    one of the items was with a worker, `queue_s` the rest. `batch_items` and `batch_tokens` describe the batch that
    carried the last item, `batches` counts all that carried any.
    """

    rows: list[R]
    queue_s: float
    run_s: float
    batches: int
    batch_items: int
    batch_tokens: int


class Ticket(Generic[P, R]):
    """One request's items on their way: which are still to be dispatched, which rows have come back."""

    __slots__ = (
        "arrived",
        "batch_items",
        "batch_tokens",
        "batches",
        "future",
        "missing",
        "next_index",
        "payloads",
        "rows",
        "run_s",
        "running",
        "running_since",
        "tokens",
    )

    def __init__(
        self, payloads: Sequence[P], tokens: Sequence[int], future: "asyncio.Future[Answer[R]]", now: float
    ) -> None:
        self.payloads = payloads
        self.tokens = tokens
        self.future = future
        self.arrived = now
        self.next_index = 0
        self.missing = len(payloads)
        self.rows: list[R | None] = [None] * len(payloads)
        self.running = 0
        self.running_since = 0.0
        self.run_s = 0.0
        self.batches = 0
        self.batch_items = 0
        self.batch_tokens = 0

    @property
    def waiting(self) -> int:
        """Items not dispatched yet."""
        return len(self.payloads) - self.next_index

    def boarded(self, now: float, items: int, tokens: int) -> None:
        """Some of the items left in a batch of `items` items and `tokens` tokens."""
        if self.running == 0:
            self.running_since = now
        self.running += 1
        self.batches += 1
        self.batch_items = items
        self.batch_tokens = tokens

    def returned(self, now: float) -> None:
        """A batch with some of the items has come back, whatever became of them."""
        self.running -= 1
        if self.running == 0:
            self.run_s += now - self.running_since
        if self.missing == 0 and not self.future.done():
            self.future.set_result(self._answer(now))

    def _answer(self, now: float) -> Answer[R]:
        return Answer(
            rows=self.rows,  # type: ignore[arg-type]  # every row is there: none is missing
            queue_s=now - self.arrived - self.run_s,
            run_s=self.run_s,
            batches=self.batches,
            batch_items=self.batch_items,
            batch_tokens=self.batch_tokens,
        )


class Batch(Generic[P, R]):
    """The items of one forward: whose they are, and what they weigh."""

    __slots__ = ("owners", "payloads", "tokens")

    def __init__(self, owners: list[tuple[Ticket[P, R], int]], payloads: list[P], tokens: int) -> None:
        self.owners = owners
        self.payloads = payloads
        self.tokens = tokens

    @property
    def items(self) -> int:
        return len(self.payloads)

    def tickets(self) -> list[Ticket[P, R]]:
        """The requests in this batch, each once, in order of arrival."""
        return list(dict.fromkeys(ticket for ticket, _ in self.owners))

    def board(self, now: float) -> list[Ticket[P, R]]:
        """Mark every request in the batch as under way; returns them."""
        tickets = self.tickets()
        for ticket in tickets:
            ticket.boarded(now, self.items, self.tokens)
        return tickets

    def resolve(self, rows: Rows[R]) -> None:
        """Give each item its row."""
        for (ticket, index), row in zip(self.owners, rows, strict=True):
            ticket.rows[index] = row
            ticket.missing -= 1

    def first_half(self) -> "Batch[P, R]":
        """The first half of the items, by number."""
        return self._part(range(self.items // 2))

    def second_half(self) -> "Batch[P, R]":
        """The items that `first_half` leaves."""
        return self._part(range(self.items // 2, self.items))

    def live(self) -> "Batch[P, R]":
        """The items somebody still waits for."""
        return self._part([i for i, (ticket, _) in enumerate(self.owners) if not ticket.future.done()])

    def _part(self, places: Sequence[int]) -> "Batch[P, R]":
        owners = [self.owners[i] for i in places]
        return Batch(owners, [self.payloads[i] for i in places], sum(ticket.tokens[i] for ticket, i in owners))
