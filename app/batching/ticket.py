"""A request's place in the batcher, and the batch that carries its items."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Rows(Protocol[R_co]):
    """What a worker returns: one row for each item, as a list or as a matrix."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[R_co]: ...


class Prepared(NamedTuple):
    """An item made ready for a worker, and its size in tokens."""

    payload: Any
    tokens: int


class Answer(NamedTuple, Generic[R]):
    """The rows of one request, in the order of its items, and where their time went.

    `prepare_s`, `queue_s` and `run_s` share out the time from submission to the last row: `run_s` is the time in
    which at least one of the items was with a worker, `queue_s` the rest after preparation. `payloads` are the items
    as prepared. `batch_items` and `batch_tokens` describe the batch that carried the last item, `batches` counts all
    that carried any.
    """

    rows: list[R]
    payloads: list[Any]
    tokens: int
    prepare_s: float
    queue_s: float
    run_s: float
    batches: int
    batch_items: int
    batch_tokens: int


class Ticket(Generic[R]):
    """One request's items on their way: first to be prepared, then to be run.

    `payloads` and `tokens` are the items as submitted until all are prepared, and the prepared ones after that;
    `next_index` is the first of them that no batch has taken.
    """

    __slots__ = (
        "arrived",
        "batch_items",
        "batch_tokens",
        "batches",
        "future",
        "missing",
        "next_index",
        "payloads",
        "prepared",
        "prepared_at",
        "rows",
        "run_s",
        "running",
        "running_since",
        "tokens",
        "undispatched",
    )

    def __init__(
        self, payloads: Sequence[Any], tokens: Sequence[int], future: "asyncio.Future[Answer[R]]", now: float
    ) -> None:
        self.payloads = payloads
        self.tokens = tokens
        self.future = future
        self.arrived = self.prepared_at = now
        self.next_index = 0
        self.prepared: list[Prepared] = []
        self.undispatched = self.missing = len(payloads)
        self.rows: list[Any] = [None] * len(payloads)
        self.running = 0
        self.running_since = 0.0
        self.run_s = 0.0
        self.batches = 0
        self.batch_items = 0
        self.batch_tokens = 0

    def is_prepared(self, now: float) -> None:
        """All items are prepared: from here on they are what waits."""
        self.payloads = [one.payload for one in self.prepared]
        self.tokens = [one.tokens for one in self.prepared]
        self.next_index = 0
        self.prepared_at = now

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

    def take_row(self, index: int, row: R, now: float) -> None:
        """One item's row is there; with the last of them, the request is answered."""
        self.rows[index] = row
        self.missing -= 1
        if self.missing == 0 and not self.future.done():
            self.future.set_result(self._answer(now))

    def _answer(self, now: float) -> Answer[R]:
        run_s = self.run_s + (now - self.running_since if self.running else 0.0)
        return Answer(
            self.rows,
            list(self.payloads),
            sum(self.tokens),
            self.prepared_at - self.arrived,
            now - self.prepared_at - run_s,
            run_s,
            self.batches,
            self.batch_items,
            self.batch_tokens,
        )


class Batch:
    """Some items on one way: whose they are, and what they weigh."""

    __slots__ = ("owners", "payloads", "tokens")

    def __init__(self, owners: list[tuple[Ticket[Any], int]], payloads: list[Any], tokens: int) -> None:
        self.owners = owners
        self.payloads = payloads
        self.tokens = tokens

    @property
    def items(self) -> int:
        return len(self.payloads)

    def tickets(self) -> list[Ticket[Any]]:
        """The requests in this batch, each once, in order of arrival."""
        return list(dict.fromkeys([ticket for ticket, _ in self.owners]))

    def resolve(self, rows: Rows[Any], now: float) -> None:
        """Give each item its row."""
        for (ticket, index), row in zip(self.owners, rows, strict=True):
            ticket.take_row(index, row, now)

    def first_half(self) -> "Batch":
        """The first half of the items, by number."""
        return self._part(range(self.items // 2))

    def second_half(self) -> "Batch":
        """The items that `first_half` leaves."""
        return self._part(range(self.items // 2, self.items))

    def live(self) -> "Batch":
        """The items somebody still waits for."""
        return self._part([i for i, (ticket, _) in enumerate(self.owners) if not ticket.future.done()])

    def _part(self, places: Sequence[int]) -> "Batch":
        owners = [self.owners[i] for i in places]
        return Batch(owners, [self.payloads[i] for i in places], sum(ticket.tokens[i] for ticket, i in owners))
