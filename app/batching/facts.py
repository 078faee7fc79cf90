"""What a batcher reports about its work, for whoever keeps count."""

from typing import Literal, Protocol

Outcome = Literal["answered", "shed", "expired", "abandoned", "failed"]
"""How an item ends: every submitted item ends in exactly one of these."""


class Facts(Protocol):
    """Receives each fact once, on the event loop; must return at once and never raise."""

    def items_ended(self, outcome: Outcome, items: int) -> None:
        """`items` items have ended as `outcome`."""

    def batch_dispatched(self, items: int, tokens: int, prepared_s: list[float], waited_s: list[float]) -> None:
        """A batch was handed to a worker. For each request in it, in seconds: how long its preparation took, and how
        long it has waited since."""

    def batch_finished(self, seconds: float) -> None:
        """A worker was busy with one batch for `seconds`, splits and retries included."""

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


class NoFacts:
    """Keeps no count; for a stage whose errors its callers report."""

    def items_ended(self, outcome: Outcome, items: int) -> None: ...
    def batch_dispatched(self, items: int, tokens: int, prepared_s: list[float], waited_s: list[float]) -> None: ...
    def batch_finished(self, seconds: float) -> None: ...
    def batch_split(self, error: Exception) -> None: ...
    def budget_lowered(self, max_batch_tokens: int) -> None: ...
    def worker_lost(self, error: Exception, workers_left: int) -> None: ...
    def item_failed(self, error: Exception) -> None: ...
    def batcher_stopped(self, error: BaseException) -> None: ...
