"""Work for the device: one row to be computed, and the items of all who wait for it."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.batching.batch import Batch
    from app.batching.ticket import Rows, Ticket


class Work:
    """One row to be computed. Items that are alike and wait at the same time share it."""

    __slots__ = ("batch", "items", "key", "payload", "prepared", "tokens")

    def __init__(self, payload: Any, tokens: int, key: Hashable, *, prepared: bool) -> None:
        self.payload = payload
        """What was submitted, and later what `prepare` made of it."""
        self.tokens = tokens
        """As estimated until it is prepared."""
        self.key = key
        """Equal for items that are alike; None where it is shared with nobody."""
        self.prepared = prepared
        self.batch: Batch | None = None
        """The batch that has taken it."""
        self.items: dict[tuple[Ticket[Any], int], None] = {}
        """Whose items wait for it, and which of theirs."""


def resolve(works: Sequence[Work], rows: "Rows[Any]", now: float) -> None:
    """Give each work its row, and with it everybody who waits for that."""
    for work, row in zip(works, rows, strict=True):
        for ticket, index in work.items:
            ticket.take_row(index, row, now)


def halves(works: Sequence[Work]) -> Iterable[list[Work]]:
    """Both halves, by number; what nobody waits for any more when its turn comes is left out."""
    middle = len(works) // 2
    for part in (works[:middle], works[middle:]):
        yield [work for work in part if work.items]
