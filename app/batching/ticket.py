"""A request's place in the batcher: where its items are, and where their time goes."""

import asyncio
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from app.batching.facts import NO_BATCH, Cause, Departure, LaneName
from app.batching.work import Work

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

    `arrived` is when it was submitted, by the batcher's clock, in seconds. `prepare_s`, `queue_s` and `run_s` share out
    the time from submission to the last row: `run_s` is the time in which at least one of the items was with a worker,
    `queue_s` the rest after preparation. `payloads` are the items as prepared. `batch` is the one that the last item
    left with, `waited_for` what it waited for before, and `batches`
    counts all that carried any.
    """

    rows: list[R]
    payloads: list[Any]
    tokens: int
    arrived: float
    prepare_s: float
    queue_s: float
    run_s: float
    batches: int
    batch: Departure
    waited_for: Cause


class Ticket(Generic[R]):
    """One request's items on their way: first they are prepared, then they wait in a lane, then they are run."""

    __slots__ = (
        "arrived",
        "batch",
        "batches",
        "cause",
        "credit",
        "deadline",
        "future",
        "lane",
        "missing",
        "next_index",
        "next_unprepared",
        "prepared_at",
        "rows",
        "run_s",
        "running",
        "running_since",
        "seen",
        "tag",
        "tokens",
        "undispatched",
        "unprepared",
        "waiting",
        "works",
    )

    def __init__(
        self,
        n_items: int,
        lane: LaneName,
        deadline: float,
        future: "asyncio.Future[Answer[R]]",
        now: float,
        tag: object = None,
    ) -> None:
        """`deadline` is when the last row must be there, on the same clock as `now`; infinity for none. `tag` is
        whatever the caller wants to be told with its batches."""
        self.lane: LaneName = lane
        self.tag = tag
        self.deadline = deadline
        self.future = future
        self.arrived = self.prepared_at = now
        self.works: list[Work] = []
        self.undispatched = 0
        """Items that no batch has taken."""
        self.tokens = 0
        """Their tokens: as estimated until they are prepared."""
        self.unprepared = 0
        self.waiting = False
        """Whether it stands in its lane: all is prepared, and something is left to be dispatched."""
        self.next_unprepared = 0
        self.next_index = 0
        """Before it, no item is left to be dispatched."""
        self.credit = 0
        """Tokens of its turn in the lane that are left."""
        self.missing = n_items
        self.rows: list[Any] = [None] * n_items
        self.running = 0
        self.running_since = 0.0
        self.run_s = 0.0
        self.batches = 0
        self.batch = NO_BATCH
        """The last that carries any of the items."""
        self.seen = 0
        """The number of the last batch that had left when it began to wait."""
        self.cause: Cause = "nothing"
        """What it has waited for."""

    def boarded(self, now: float, batch: Departure) -> None:
        """Some of the items are in a batch that has left."""
        if self.running == 0:
            self.running_since = now
        self.running += 1
        self.batches += 1
        self.batch = batch

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
        # While one item is prepared, another may already be on its way in a row that it shares.
        prepare_s = min(self.prepared_at - self.arrived, now - self.arrived - run_s)
        return Answer(
            self.rows,
            [work.payload for work in self.works],
            sum([work.tokens for work in self.works]),
            self.arrived,
            prepare_s,
            now - self.arrived - prepare_s - run_s,
            run_s,
            self.batches,
            self.batch,
            self.cause,
        )
