"""What a batcher reports about its work, for whoever keeps count."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

LaneName = Literal["interactive", "bulk"]
LANES: tuple[LaneName, ...] = ("interactive", "bulk")

Outcome = Literal["answered", "shed", "expired", "abandoned", "failed"]
"""How an item ends: every submitted item ends in exactly one of these."""

Closed = Literal["drained", "tokens", "items", "lane", "deadline"]
"""Why a batch holds no more: nothing else was ready, the token or the item budget was used up, bulk was held back, or
it was cut down so that somebody's deadline is met."""

Cause = Literal["nothing", "device", "budget", "lane", "growth"]
"""What a request waited for before it was dispatched: nothing, a worker, room in the batches that left meanwhile, its
lane's turn, or `max_wait_ms`."""


class Departure(NamedTuple):
    """A batch as it left: when, by the batcher's clock, in seconds; its number, counted from 1; the rows and their
    tokens; the tokens that the model computes for them, padding included; the token budget it was filled by; why it
    holds no more; how long it should keep its device busy, 0 where nothing is known; and how many items waited on."""

    left_at: float
    number: int
    items: int
    tokens: int
    computed_tokens: int
    max_tokens: int
    closed: Closed
    predicted_s: float
    left_items: int

    @property
    def padding(self) -> float:
        """The share of the computed tokens that belong to no item."""
        return 1 - self.tokens / self.computed_tokens if self.computed_tokens else 0.0

    @property
    def full(self) -> float:
        """Its tokens as a share of the budget; more than 1 where one item is larger than that."""
        return self.tokens / self.max_tokens if self.max_tokens else 0.0


NO_BATCH = Departure(0.0, 0, 0, 0, 0, 0, "drained", 0.0, 0)
"""Where nothing had to be computed."""


class Facts(Protocol):
    """Receives each fact once, on the event loop; must return at once and never raise."""

    def items_ended(self, lane: LaneName, outcome: Outcome, items: int) -> None:
        """`items` items of a request have ended as `outcome`."""

    def items_shared(self, items: int) -> None:
        """So many items wait for a row that is computed for another item like them."""

    def batch_dispatched(self, batch: Departure) -> None:
        """A batch was handed to a worker."""

    def requests_boarded(
        self, lane: LaneName, prepared_s: Sequence[float], waited_s: Sequence[float], causes: Sequence[Cause]
    ) -> None:
        """For each request of a lane in that batch: how many seconds its preparation took, how many it has waited
        since, and for what."""

    def batch_finished(self, batch: Departure, seconds: float, tags: Sequence[object]) -> None:
        """A batch took `seconds` on its device, splits and retries included. `tags` are those that its requests were
        submitted with, where they were with any."""

    def batch_split(self, error: Exception) -> None:
        """A batch failed with `error` and is run again as two halves."""

    def budget_lowered(self, max_batch_tokens: int) -> None:
        """The device ran out of memory; the token budget is now `max_batch_tokens`."""

    def worker_lost(self, error: Exception, workers_left: int) -> None:
        """A worker has died with `error`; `workers_left` remain."""

    def item_failed(self, error: Exception) -> None:
        """One item failed alone with `error`."""

    def batcher_stopped(self, error: BaseException) -> None:
        """The batcher's own loop has ended with `error`, which is a defect; it serves no more."""
