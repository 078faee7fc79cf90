"""The batcher: a coroutine that hands batches to free workers and gives each request its own rows."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from app.batching.deadlines import Deadlines
from app.batching.estimate import Rate
from app.batching.facts import Facts, Outcome
from app.batching.pool import Pool, Run, Seat
from app.batching.preparation import Preparation, Prepare, PrepareHere
from app.batching.queue import TicketQueue
from app.batching.ticket import Answer, Batch, R, Ticket
from app.errors import (
    BackendFailed,
    DeadlineExceeded,
    NotReady,
    OutOfMemory,
    QueueFull,
    ShuttingDown,
    WorkerDied,
    own_copy,
)

Q = TypeVar("Q")

FAILING_AFTER = 3
"""So many items failed one after another, and none succeeded between them: the device is suspect."""


class Batcher(Generic[Q, R]):
    """Gathers the items of many requests into batches, one free worker at a time.

    Items are prepared first by `prepare`, many in one call, while the workers are busy (a lone small one by
    `prepare_here`, on the event loop); then they wait. A batch is chosen at the
    moment a worker can take it, never earlier: an idle worker takes whatever waits, at once; batches form by
    themselves while all workers are busy. A batch holds at most `max_batch_items` items and `max_batch_tokens` tokens,
    or one item that is larger. With `max_wait_ms` above 0 an incomplete batch waits until its oldest item has waited
    that long. `devices` names the device of each worker, where not all share one.

    A batch that fails is run again in halves until the item at fault fails alone; a batch the device has no memory
    for lowers the token budget as well, down to `min_batch_tokens`.

    `clock` measures where time went, in seconds; deadlines and waiting follow the event loop's own clock, which may be
    coarser. Use as an asynchronous context manager; leaving it ends every request that still waits.
    """

    def __init__(
        self,
        workers: Sequence[Run[R]],
        *,
        devices: Sequence[Hashable] | None = None,
        facts: Facts,
        max_batch_items: int,
        max_batch_tokens: int,
        max_queue_items: int,
        max_wait_ms: float = 0,
        min_batch_tokens: int = 1,
        prepare: Prepare | None = None,
        prepare_here: PrepareHere | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.max_batch_items = max_batch_items
        self.max_batch_tokens = max_batch_tokens
        self.waiting_items = 0
        """Items submitted and not dispatched; `max_queue_items` bounds it."""
        self._min_batch_tokens = min_batch_tokens
        self._max_queue_items = max_queue_items
        self._max_wait_s = max_wait_ms / 1000
        self._facts = facts
        self._clock = clock
        self._pool: Pool[R] = Pool(workers, devices)
        self._open: set[Ticket[R]] = set()
        self._deadlines: Deadlines[Ticket[R]] = Deadlines(self._expire)
        self._queue = TicketQueue()
        self._preparation = (
            Preparation(prepare, prepare_here, hand_on=self._wait, refuse=self._end) if prepare is not None else None
        )
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._rate = Rate()
        self._failed_in_a_row = 0
        self._draining = False
        self._drained = asyncio.Event()
        self._stopped_by: Exception | None = None
        self._stopped = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._own(self._run())
        if self._preparation is not None:
            self._own(self._prepare(self._preparation))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop(ShuttingDown("The service has shut down."))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def alive(self) -> bool:
        """Whether a request submitted now would be taken up by a worker."""
        return bool(self._tasks) and self._stopped_by is None

    @property
    def failing(self) -> bool:
        """Whether the last items all failed on the device, with no success between them."""
        return self._failed_in_a_row >= FAILING_AFTER

    @property
    def waiting_tokens(self) -> int:
        """Tokens prepared and not dispatched."""
        return self._queue.tokens

    @property
    def predicted_wait_s(self) -> float:
        """How long what waits now keeps the workers busy, in seconds, by their recent rate; 0 where there is none."""
        return self._rate.seconds_for(self._queue.tokens, self._pool.workers)

    async def submit(self, items: Sequence[Q], sizes: Sequence[int], *, deadline: float | None = None) -> Answer[R]:
        """Wait for the rows of `items`, in their order; all are accepted and answered, or none.

        `sizes` holds the tokens of each item or, where the batcher prepares items, any measure of the work that is.
        `deadline` is a time of the event loop's clock, in seconds. Cancelling the call abandons the items: those not
        dispatched yet never reach a worker.

        Raises QueueFull, ShuttingDown or NotReady before any work, with the seconds after which to try again;
        DeadlineExceeded; BackendFailed where one of the items failed; what `prepare` refused one of them with.
        """
        self._admit(len(items))
        ticket: Ticket[R] = Ticket(items, sizes, asyncio.get_running_loop().create_future(), self._clock())
        self._enqueue(ticket)
        slot = self._deadlines.add(ticket, deadline) if deadline is not None else None
        outcome: Outcome = "failed"
        try:
            answer = await ticket.future
            outcome = "answered"
            return answer
        except asyncio.CancelledError:
            outcome = "abandoned"
            raise
        except DeadlineExceeded:
            outcome = "expired"
            raise
        finally:
            if slot is not None:
                self._deadlines.remove(ticket, slot)
            self._close(ticket)
            self._facts.items_ended(outcome, len(items))

    async def stopped(self) -> Exception:
        """Wait until no request can be served any more, and say why."""
        await self._stopped.wait()
        assert self._stopped_by is not None
        return self._stopped_by

    async def drain(self) -> None:
        """Accept nothing new, and return when everything accepted has ended; bound it with a timeout."""
        self._draining = True
        self._wake.set()
        if self._open:
            await self._drained.wait()

    def stop(self, error: Exception) -> None:
        """Refuse whatever comes and end whatever waits, all with `error`."""
        self._stopped_by = self._stopped_by or error
        self._stopped.set()
        for ticket in list(self._open):
            self._end(ticket, error)

    # --- admit ------------------------------------------------------------------------------------------------------

    def _admit(self, items: int) -> None:
        if self._stopped_by is not None:
            raise own_copy(self._stopped_by)
        if self._draining:
            raise ShuttingDown("The service is shutting down; send this to another replica.")
        room = self._max_queue_items - self.waiting_items
        if items > room:
            self._facts.items_ended("shed", items)
            raise QueueFull(
                f"The queue has room for {room} more inputs and this request brings {items} "
                f"(limit {self._max_queue_items}, --max-queue-items); try again in a moment.",
                retry_after_s=max(1.0, self.predicted_wait_s),
            )

    def _enqueue(self, ticket: Ticket[R]) -> None:
        self._open.add(ticket)
        self.waiting_items += ticket.undispatched
        if self._preparation is not None:
            self._preparation.put(ticket)
        else:
            self._queue.put(ticket)
            self._wake.set()

    def _wait(self, tickets: list[Ticket[R]]) -> None:
        """These requests are prepared; from here on they wait for a worker."""
        now = self._clock()
        for ticket in tickets:
            ticket.is_prepared(now)
            self._queue.put(ticket)
        self._wake.set()

    async def _prepare(self, preparation: Preparation) -> None:
        try:
            await preparation.run()
        except WorkerDied as error:
            self.stop(NotReady(f"Inputs can no longer be prepared; this replica must be restarted. {error}"))

    def _close(self, ticket: Ticket[R]) -> None:
        """Forget a request that has ended, and free the places it still holds."""
        self._open.discard(ticket)
        self._leave_queues(ticket)
        self.waiting_items -= ticket.undispatched
        ticket.undispatched = 0
        if self._draining and not self._open:
            self._drained.set()

    # --- gather, dispatch, answer -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._work_and_a_free_worker()
            await self._growth()
            if self._queue:
                self._dispatch(self._queue.take(self.max_batch_items, self.max_batch_tokens))

    async def _work_and_a_free_worker(self) -> None:
        while not (self._queue and self._pool):
            self._wake.clear()
            await self._wake.wait()

    async def _growth(self) -> None:
        """Let an incomplete batch grow until its oldest item has waited `max_wait_ms`."""
        while self._max_wait_s and self._queue and not self._draining:
            if self._queue.fills(self.max_batch_items, self.max_batch_tokens):
                return
            left_s = self._queue.oldest_arrival + self._max_wait_s - self._clock()
            if left_s <= 0:
                return
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._wake.wait()

    def _dispatch(self, batch: Batch) -> None:
        self.waiting_items -= batch.items
        for ticket, _ in batch.owners:
            ticket.undispatched -= 1
        self._own(self._carry(self._pool.take(batch.tokens), batch))

    async def _carry(self, worker: Seat, batch: Batch) -> None:
        """Take one batch to a worker and back, then free the worker, or let it go if it has died."""
        started = self._clock()
        tickets = batch.tickets()
        for ticket in tickets:
            ticket.boarded(started, batch.items, batch.tokens)
        self._facts.batch_dispatched(
            batch.items,
            batch.tokens,
            [ticket.prepared_at - ticket.arrived for ticket in tickets],
            [started - ticket.prepared_at for ticket in tickets],
        )
        try:
            await self._run_or_split(worker.run, batch)
        except WorkerDied as error:
            self._fail(batch, error)
            self._pool.lose(worker, batch.tokens)
            self._worker_lost(error)
        else:
            self._pool.give_back(worker, batch.tokens)
        finally:
            now = self._clock()
            for ticket in tickets:
                ticket.returned(now)
            self._rate.learn(batch.tokens, now - started)
            self._facts.batch_finished(now - started)
            self._wake.set()

    async def _run_or_split(self, worker: Run[R], batch: Batch) -> None:
        """Run a batch; if it fails, run its halves, until the item at fault is alone and fails."""
        try:
            rows = await worker(batch.payloads)
            if len(rows) != batch.items:
                raise BackendFailed(f"The model returned {len(rows)} rows for {batch.items} items.")
        except WorkerDied:
            raise
        except Exception as error:
            if batch.items == 1:
                self._failed_in_a_row += 1
                self._facts.item_failed(error)
                self._fail(batch, error)
                return
            if isinstance(error, OutOfMemory):
                self._lower_budget(batch.tokens)
            self._facts.batch_split(error)
            for half in (batch.first_half(), batch.second_half()):
                live = half.live()
                if live.items:
                    await self._run_or_split(worker, live)
        else:
            self._failed_in_a_row = 0
            batch.resolve(rows, self._clock())

    # --- what can go wrong ------------------------------------------------------------------------------------------

    def _end(self, ticket: Ticket[R], error: Exception) -> None:
        """End a request with an exception of its own; one that has ended already is left as it is."""
        if not ticket.future.done():
            ticket.future.set_exception(own_copy(error))
        self._leave_queues(ticket)

    def _leave_queues(self, ticket: Ticket[R]) -> None:
        self._queue.discard(ticket)
        if self._preparation is not None:
            self._preparation.discard(ticket)

    def _fail(self, batch: Batch, error: Exception) -> None:
        for ticket in batch.tickets():
            self._end(ticket, error)  # one whose rows are all there has been answered already

    def _expire(self, ticket: Ticket[R]) -> None:
        waited_ms = (self._clock() - ticket.arrived) * 1000
        self._end(ticket, DeadlineExceeded(f"The answer was not ready within the deadline; waited {waited_ms:.0f} ms."))

    def _lower_budget(self, failed_tokens: int) -> None:
        lower = max(self._min_batch_tokens, min(self.max_batch_tokens, failed_tokens) // 2)
        if lower < self.max_batch_tokens:
            self.max_batch_tokens = lower
            self._facts.budget_lowered(lower)

    def _worker_lost(self, error: Exception) -> None:
        self._facts.worker_lost(error, self._pool.workers)
        if self._pool.workers == 0:
            self.stop(NotReady("The model's last worker has died; this replica must be restarted."))

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        """None of the batcher's tasks may die silently: a defect in one ends all that wait, and says so."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._facts.batcher_stopped(error)
            self.stop(NotReady("The batcher has stopped; this replica must be restarted."))

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
