"""The two lanes, and how a batch is shared out between them."""

from collections.abc import Sequence

from app.batching.batch import Batch, Limits
from app.batching.facts import LaneName
from app.batching.lane import Lane
from app.batching.work import Work

SHARE_MEMORY = 0.8
"""Weight of the past in what each lane has recently had of the batches."""
LEAST_SHARE = 0.01
"""What a lane is taken to get where it is guaranteed nothing."""


class Lanes:
    """Interactive items fill a batch first, bulk takes what is left. Where both wait, bulk is given `bulk_share` of the
    tokens: what it falls short of that is remembered, until its next item is paid for and goes first."""

    def __init__(self, bulk_share: float) -> None:
        self._bulk_share = bulk_share
        self._bulk_credit = 0.0
        self._had: dict[LaneName, float] = {"interactive": 1.0, "bulk": 1.0}
        self._by_name: dict[LaneName, Lane] = {"interactive": Lane(), "bulk": Lane()}
        self.interactive = self._by_name["interactive"]
        self.bulk = self._by_name["bulk"]

    def __bool__(self) -> bool:
        """Whether anything is ready to be dispatched."""
        return self.interactive.ready_items > 0 or self.bulk.ready_items > 0

    def __getitem__(self, name: LaneName) -> Lane:
        return self._by_name[name]

    @property
    def items(self) -> int:
        """Items submitted and not dispatched."""
        return self.interactive.items + self.bulk.items

    @property
    def tokens(self) -> int:
        """Their tokens, as estimated until they are prepared."""
        return self.interactive.tokens + self.bulk.tokens

    def fills(self, limits: Limits) -> bool:
        """Whether what is ready is enough for a full batch."""
        return (
            self.interactive.ready_items + self.bulk.ready_items >= limits.items
            or self.interactive.ready_tokens + self.bulk.ready_tokens >= limits.tokens
        )

    @property
    def oldest_arrival(self) -> float:
        """When the request arrived that has been here longest."""
        return min(self.interactive.oldest_arrival, self.bulk.oldest_arrival)

    def share(self, name: LaneName) -> float:
        """The part of the batches that this lane can count on: what it has recently had while it would have taken more,
        and at least what it is guaranteed."""
        return max(self._had[name], self._bulk_share if name == "bulk" else 1 - self._bulk_share, LEAST_SHARE)

    def fill(self, limits: Limits, *, fill_with_bulk: bool = True) -> Batch:
        """The next batch, not dispatched yet: `taken` must follow, where `keep` has not put all of it back."""
        batch = Batch(limits, bulk_held=not fill_with_bulk)
        if self.interactive.ready_items and self._bulk_credit > 0:
            coming = self.bulk.next()
            if coming is not None and coming[1].tokens <= self._bulk_credit:
                self.bulk.draw(batch, Limits(limits.items, min(int(self._bulk_credit), limits.tokens)))
        self.interactive.draw(batch, limits)
        if fill_with_bulk:
            self.bulk.draw(batch, limits)
        return batch

    def keep(self, batch: Batch, works: Sequence[Work]) -> None:
        """Only these of a batch go; the others wait again, in their order."""
        for work in batch.keep(works):
            for ticket, index in work.items:
                if ticket.waiting:
                    self[ticket.lane].put_back(ticket, index, work.tokens)

    def taken(self, batch: Batch) -> None:
        """This batch has been dispatched: nobody's items wait for it any more."""
        bulk_tokens = 0
        contended = self.interactive.ready_items > 0 and self.bulk.ready_items > 0
        for work in batch.works:
            if all(ticket.lane == "bulk" for ticket, _ in work.items):
                bulk_tokens += work.tokens
            for ticket, _ in work.items:
                self[ticket.lane].dispatched(ticket, work.tokens)
                batch.tickets[ticket] = None
        self._settle(batch.tokens, bulk_tokens, contended)

    def _settle(self, tokens: int, bulk_tokens: int, contended: bool) -> None:
        """What bulk is owed, and what each lane has had that would have taken more."""
        owed = self._bulk_credit + self._bulk_share * tokens - bulk_tokens if contended else 0.0
        self._bulk_credit = max(0.0, owed)
        had_by: tuple[tuple[LaneName, Lane, int], ...] = (
            ("interactive", self.interactive, tokens - bulk_tokens),
            ("bulk", self.bulk, bulk_tokens),
        )
        for name, lane, had in had_by:
            if lane.ready_items and tokens:
                self._had[name] = SHARE_MEMORY * self._had[name] + (1 - SHARE_MEMORY) * had / tokens
