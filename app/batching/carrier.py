"""Carrying a batch to a worker and back, and what is left of it when that fails."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic

from app.batching.facts import Facts
from app.batching.pool import Run
from app.batching.ticket import R, Rows
from app.batching.work import Work, halves
from app.errors import BackendFailed, OutOfMemory, WorkerDied

FAILING_AFTER = 3
"""So many items failed one after another, and none succeeded between them: the device is suspect."""


class Carrier(Generic[R]):
    """Runs works on a worker; where that fails, runs their halves, until the one at fault is alone and fails."""

    def __init__(
        self,
        facts: Facts,
        *,
        watchdog_s: float | None,
        deliver: Callable[[Sequence[Work], Rows[R]], None],
        fail: Callable[[Sequence[Work], Exception], None],
        lower_budget: Callable[[int], None],
    ) -> None:
        """`deliver` gives works their rows; `fail` ends all who wait for them; `lower_budget` is told how many tokens
        were too many for the device's memory."""
        self._facts = facts
        self._watchdog_s = watchdog_s
        self._deliver = deliver
        self._fail = fail
        self._lower_budget = lower_budget
        self._failed_in_a_row = 0

    @property
    def failing(self) -> bool:
        """Whether the last items all failed on the device, with no success between them."""
        return self._failed_in_a_row >= FAILING_AFTER

    async def carry(self, run: Run[R], works: Sequence[Work], begun: Awaitable[Rows[R]]) -> Rows[R] | None:
        """Wait for a run that has begun; returns its rows. Where it fails, its halves are run and get their rows here,
        or fail in the end; then there are none to return.

        Raises WorkerDied where the worker can take no further batch.
        """
        try:
            rows = await self._answer(begun, len(works))
            if len(rows) != len(works):
                raise BackendFailed(f"The model returned {len(rows)} rows for {len(works)} items.")
        except WorkerDied:
            raise
        except Exception as error:
            await self._split(run, works, error)
            return None
        self._failed_in_a_row = 0
        return rows

    async def _answer(self, begun: Awaitable[Rows[R]], items: int) -> Rows[R]:
        """The worker's rows; one that is silent for too long counts as dead, since nothing can end its thread."""
        try:
            async with asyncio.timeout(self._watchdog_s) as watchdog:
                return await begun
        except TimeoutError as error:
            if not watchdog.expired():
                raise
            raise WorkerSilent(
                f"The model has not answered a batch of {items} inputs within {self._watchdog_s:g} s (--watchdog-s)."
            ) from error

    async def _split(self, run: Run[R], works: Sequence[Work], error: Exception) -> None:
        if len(works) == 1:
            self._failed_in_a_row += 1
            self._facts.item_failed(error)
            self._fail(works, error)
            return
        if isinstance(error, OutOfMemory):
            self._lower_budget(sum([work.tokens for work in works]))
        self._facts.batch_split(error)
        for half in halves(works):
            if half:
                rows = await self.carry(run, half, run([work.payload for work in half]))
                if rows is not None:
                    self._deliver(half, rows)


class WorkerSilent(WorkerDied):
    """The worker has not answered for too long; its device is taken to hang."""
