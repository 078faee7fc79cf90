"""What a batcher reports about its work, for whoever keeps count."""

from collections.abc import Sequence
from typing import Literal, Protocol

from app.batching.ticket import LaneName

Outcome = Literal["answered", "shed", "expired", "abandoned", "failed"]
"""How an item ends: every submitted item ends in exactly one of these."""


class Facts(Protocol):
    """Receives each fact once, on the event loop; must return at once and never raise."""

    def items_ended(self, lane: LaneName, outcome: Outcome, items: int) -> None:
        """`items` items of a request have ended as `outcome`."""

    def items_shared(self, items: int) -> None:
        """So many items wait for a row that is computed for another item like them."""

    def batch_dispatched(self, items: int, tokens: int) -> None:
        """A batch of so many rows was handed to a worker."""

    def requests_boarded(self, lane: LaneName, prepared_s: Sequence[float], waited_s: Sequence[float]) -> None:
        """For each request of a lane in that batch, in seconds: how long its preparation took, and how long it has
        waited since."""

    def batch_finished(self, items: int, tokens: int, left_items: int, seconds: float) -> None:
        """A batch took `seconds` on its device, splits and retries included; `left_items` waited on when it left."""

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
