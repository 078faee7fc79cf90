"""The batcher: a coroutine that hands batches to free workers and gives each request its own rows."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from app.batching.admission import ANSWER_S, Admission
from app.batching.batch import Batch, Limits
from app.batching.carrier import Carrier, WorkerSilent
from app.batching.choice import Choice
from app.batching.deadlines import Deadlines
from app.batching.departures import ComputedTokens, Departures
from app.batching.facts import Facts, LaneName, Outcome
from app.batching.lanes import Lanes
from app.batching.law import ServiceLaw
from app.batching.policy import Policy
from app.batching.pool import Pool, Run, Trip
from app.batching.preparation import Preparation, Prepare, PrepareHere
from app.batching.ticket import Answer, Prepared, R, Rows, Ticket
from app.batching.work import Work, resolve
from app.errors import (
    ConvoyError,
    DeadlineExceeded,
    InvalidInput,
    NotReady,
    ShuttingDown,
    WorkerDied,
    own_copy,
)

Q = TypeVar("Q")


class Batcher(Generic[Q, R]):
    """Gathers the items of many requests into batches, one free worker at a time.

    Items are prepared first by `prepare`, many in one call, while the workers are busy (a lone small one by
    `prepare_here`, on the event loop); then they wait in their lane. A batch is chosen at the moment a worker can take
    it, never earlier: an idle worker takes whatever waits, at once; batches form by themselves while all workers are
    busy. `Policy` says what a batch may hold and who may wait; `devices` names the device of each worker, where not all
    share one, and no more than `side_by_side` batches run at a time on one that is shared (and one of interactive items
    beside bulk); `law` predicts how long a batch takes, and learns from each.

    Where `host_s` returns more than 0, a device works by itself while the next batch is prepared by another worker of
    its own, which takes the host so many seconds. Items for which `alike` returns equal keys share one row while they
    wait at the same time; None shares with nobody.

    `computed_tokens` tells how many tokens a worker computes for items of such sizes, padding included.

    `clock` measures where time went, in seconds; deadlines and waiting follow the event loop's own clock, which may be
    coarser. Use as an asynchronous context manager; leaving it ends every request that still waits.
    """

    def __init__(
        self,
        workers: Sequence[Run[R]],
        *,
        policy: Policy,
        facts: Facts,
        devices: Sequence[Hashable] | None = None,
        law: ServiceLaw | None = None,
        host_s: Callable[[], float] = lambda: 0.0,
        side_by_side: int | None = None,
        prepare: Prepare | None = None,
        prepare_here: PrepareHere | None = None,
        alike: Callable[[Q], Hashable] = lambda item: None,
        computed_tokens: ComputedTokens = sum,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.max_batch_tokens = policy.max_batch_tokens
        """The token budget in force."""
        self.law = law or ServiceLaw()
        self._policy = policy
        self._facts = facts
        self._alike = alike
        self._clock = clock
        self._pool: Pool[R] = Pool(workers, devices, self.law, host_s, side_by_side)
        self._lanes = Lanes(policy.bulk_share)
        self._admission = Admission(
            self._lanes, self.law, self._pool, max_items=policy.max_queue_items, max_tokens=policy.max_queue_tokens
        )
        self._choice = Choice(self._lanes, self.law, self._pool, drop=self._expire)
        self._carrier: Carrier[R] = Carrier(
            facts, watchdog_s=policy.watchdog_s, deliver=self._deliver, fail=self._fail, lower_budget=self._lower_budget
        )
        self._departures = Departures(self._lanes, computed_tokens)
        self._preparation = (
            Preparation(prepare, prepare_here, report=self._were_prepared, watchdog_s=policy.watchdog_s)
            if prepare is not None
            else None
        )
        self._deadlines: Deadlines[Ticket[R]] = Deadlines(self._expire)
        self._in_flight: dict[Hashable, Work] = {}
        self._open: set[Ticket[R]] = set()
        self._interactive_at = -math.inf
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
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
        return self._carrier.failing

    @property
    def short_batch_tokens(self) -> int:
        """The token budget while interactive requests come: what their target time allows by the law of service."""
        policy = self._policy
        if policy.target_batch_s:
            tokens = self.law.tokens_within(policy.target_batch_s / self._pool.slowdown)
        else:
            tokens = max(policy.least_short_tokens, self.law.tokens_reaching(policy.knee))
        return min(tokens, self.max_batch_tokens)

    def busy_seconds(self) -> list[float]:
        """How long each device has been busy since the beginning, in seconds."""
        return self._pool.busy_seconds(self._clock())

    def waiting_items(self, lane: LaneName) -> int:
        """Items submitted and not dispatched; `max_queue_items` bounds those of both lanes."""
        return self._lanes[lane].items

    def waiting_tokens(self, lane: LaneName) -> int:
        """Their tokens, as estimated until they are prepared."""
        return self._lanes[lane].tokens

    async def submit(
        self,
        items: Sequence[Q],
        sizes: Sequence[int],
        *,
        lane: LaneName = "interactive",
        deadline: float | None = None,
        tag: object = None,
    ) -> Answer[R]:
        """Wait for the rows of `items`, in their order; all are accepted and answered, or none.

        `sizes` holds the tokens of each item or, where the batcher prepares items, an estimate of them. `deadline` is a
        time of the event loop's clock, in seconds. `tag` is told to `facts` with each batch. Cancelling the call
        abandons the items: those not dispatched yet never reach a worker.

        Raises QueueFull, WouldBeLate, ShuttingDown or NotReady before any work, with the seconds after which to try
        again; DeadlineExceeded; BackendFailed where one of the items failed; InvalidInput where the queue could never
        hold them, and what `prepare` refused one of them with.
        """
        outcome: Outcome = "shed"
        ticket = slot = None
        try:
            ticket = self._admit(items, sizes, lane, deadline, tag)
            slot = self._deadlines.add(ticket, deadline) if deadline is not None else None
            outcome = "failed"
            answer: Answer[R] = await ticket.future
            outcome = "answered"
            return answer
        except asyncio.CancelledError:
            outcome = "abandoned"
            raise
        except DeadlineExceeded:
            outcome = "expired"
            raise
        finally:
            if ticket is not None:
                if slot is not None:
                    self._deadlines.remove(ticket, slot)
                self._close(ticket)
            self._facts.items_ended(lane, outcome, len(items))

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

    # --- admit and prepare ------------------------------------------------------------------------------------------

    def _admit(
        self, items: Sequence[Q], sizes: Sequence[int], lane: LaneName, deadline: float | None, tag: object
    ) -> Ticket[R]:
        if self._stopped_by is not None:
            raise own_copy(self._stopped_by)
        if self._draining:
            raise ShuttingDown("The service is shutting down; send this to another replica.")
        loop, now = asyncio.get_running_loop(), self._clock()
        left_s = deadline - loop.time() if deadline is not None else math.inf
        self._admission.check(lane, len(items), sum(sizes), left_s, now, self._limits())
        if lane == "interactive":
            self._interactive_at = now
        ticket: Ticket[R] = Ticket(len(items), lane, now + left_s - ANSWER_S, loop.create_future(), now, tag)
        self._open.add(ticket)
        for item, size in zip(items, sizes, strict=True):
            self._join(ticket, item, size)
        self._lanes[lane].reserve(ticket)
        self._go_on(ticket)
        return ticket

    def _join(self, ticket: Ticket[R], item: Q, size: int) -> None:
        """One item waits for its row: for one that is on its way already, or for a new one."""
        key = self._alike(item)
        work = self._in_flight.get(key) if key is not None else None
        if work is None:
            work = Work(item, size, key, prepared=self._preparation is None)
            if key is not None:
                self._in_flight[key] = work
        else:
            self._facts.items_shared(1)
        work.items[ticket, len(ticket.works)] = None
        ticket.works.append(work)
        if work.batch is None:
            ticket.undispatched += 1
            ticket.tokens += work.tokens
            ticket.unprepared += not work.prepared
        elif ticket not in work.batch.tickets:
            work.batch.board(ticket, self._clock())

    def _go_on(self, ticket: Ticket[R]) -> None:
        """Prepare what is not prepared of a request, or let it wait in its lane."""
        if ticket.unprepared:
            assert self._preparation is not None
            self._preparation.put(ticket)
        elif ticket.undispatched:
            ticket.prepared_at = now = self._clock()
            self._departures.awaited_by(ticket, may_go=self._may_go(ticket.lane, now))
            self._lanes[ticket.lane].put(ticket)
            self._wake.set()

    def _were_prepared(self, outcomes: Sequence[tuple[Work, Prepared | ConvoyError]]) -> None:
        for work, outcome in outcomes:
            if isinstance(outcome, Prepared):
                self._was_prepared(work, outcome)
            else:
                self._refuse(work, outcome)

    def _was_prepared(self, work: Work, outcome: Prepared) -> None:
        if work.prepared:
            return  # for another request, meanwhile
        more = outcome.tokens - work.tokens
        work.payload, work.tokens, work.prepared = outcome.payload, outcome.tokens, True
        for ticket, _ in work.items:
            self._lanes[ticket.lane].correct(ticket, more)
            ticket.unprepared -= 1
            if not ticket.unprepared:
                self._go_on(ticket)

    def _refuse(self, work: Work, error: ConvoyError) -> None:
        for ticket, index in list(work.items):
            if isinstance(error, InvalidInput):
                error.index = index
            self._end(ticket, error)

    async def _prepare(self, preparation: Preparation) -> None:
        try:
            await preparation.run()
        except WorkerDied as error:
            self.stop(NotReady(f"Inputs can no longer be prepared; this replica must be restarted. {error}"))

    # --- gather, dispatch, answer -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._work_and_a_free_worker()
            self._departures.delayed = await self._growth()
            batch = self._choice.next_batch(self._clock(), self._limits(), fill_with_bulk=self._bulk_may_fill)
            if batch is not None:
                self._dispatch(batch)

    async def _work_and_a_free_worker(self) -> None:
        """Wait until something waits, and a worker may take it."""
        while True:
            ready_in_s = None
            if self._something_may_go:
                ready_in_s = self._pool.ready_in_s(self._clock())
            if ready_in_s == 0:
                return
            await self._woken(ready_in_s)

    async def _growth(self) -> bool:
        """Let an incomplete batch grow until its oldest item has waited `max_wait_ms`; returns whether it has waited
        at all."""
        waited = False
        while self._policy.max_wait_s and self._lanes and not self._draining and not self._lanes.fills(self._limits()):
            left_s = self._lanes.oldest_arrival + self._policy.max_wait_s - self._clock()
            if left_s <= 0:
                break
            waited = True
            await self._woken(left_s)
        return waited

    async def _woken(self, timeout_s: float | None) -> None:
        """Wait for news, and no longer than this."""
        self._wake.clear()
        if timeout_s is None:
            await self._wake.wait()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()

    def _limits(self) -> Limits:
        """What a batch may hold now: while interactive requests come, none takes longer than they can bear."""
        tokens = self.short_batch_tokens if self._people_are_here else self.max_batch_tokens
        return Limits(self._policy.max_batch_items, tokens)

    @property
    def _people_are_here(self) -> bool:
        """Whether interactive requests have come lately, so that more are to be expected."""
        return self._clock() - self._interactive_at < self._policy.presence_s

    @property
    def _bulk_may_fill(self) -> bool:
        """Whether bulk takes what interactive items leave of a batch: not where it can go with a worker of its own."""
        return self._pool.takes_bulk() and not (self._pool.keeps_a_spare and self._lanes.interactive.ready_items)

    @property
    def _something_may_go(self) -> bool:
        """Whether something waits that the batches on their way leave room for."""
        if self._lanes.interactive.ready_items and self._pool.takes_interactive():
            return True
        return self._lanes.bulk.ready_items > 0 and self._pool.takes_bulk()

    def _may_go(self, lane: LaneName, now: float) -> bool:
        """Whether a worker could take a batch of this lane at once."""
        if not self._pool.n_running:
            return True
        if self._pool.ready_in_s(now) != 0:
            return False
        return self._pool.takes_interactive() if lane == "interactive" else self._pool.takes_bulk()

    def _dispatch(self, batch: Batch) -> None:
        now = self._clock()
        trip = self._pool.take(batch.tokens, now, bulk=any(ticket.lane == "bulk" for ticket in batch.tickets))
        batch.leave(now, self._departures.left(batch, now, trip.seconds))
        self._facts.batch_dispatched(batch.departure)
        for lane, tickets in batch.by_lane():
            self._facts.requests_boarded(
                lane,
                [ticket.prepared_at - ticket.arrived for ticket in tickets],
                [now - ticket.prepared_at for ticket in tickets],
                [ticket.cause for ticket in tickets],
            )
        begun = asyncio.ensure_future(trip.run([work.payload for work in batch.works]))
        self._own(self._carry(batch, trip, begun))

    async def _carry(self, batch: Batch, trip: Trip, begun: Awaitable[Rows[R]]) -> None:
        """Wait for a batch, then free its worker for the next one before anybody is answered, or let it go if it has
        died."""
        try:
            rows = await self._carrier.carry(trip.run, batch.works, begun)
        except WorkerDied as error:
            self._pool.lose(trip, self._clock())
            self._wake.set()
            self._fail(batch.works, error)
            self._worker_lost(error)
        else:
            seconds = self._pool.give_back(trip, self._clock())
            self._wake.set()
            if rows is not None:
                self.law.learn(batch.tokens, seconds)
                self._deliver(batch.works, rows)
            self._facts.batch_finished(batch.departure, seconds, batch.tags)
        finally:
            batch.came_back(self._clock())

    def _deliver(self, works: Sequence[Work], rows: Rows[R]) -> None:
        self._forget(works)
        resolve(works, rows, self._clock())

    def _forget(self, works: Sequence[Work]) -> None:
        """Whoever comes with an item like these now needs a new row."""
        for work in works:
            if work.key is not None and self._in_flight.get(work.key) is work:
                del self._in_flight[work.key]

    # --- ends -------------------------------------------------------------------------------------------------------

    def _close(self, ticket: Ticket[R]) -> None:
        """Forget a request that has ended, and free the places it still holds."""
        self._open.discard(ticket)
        self._leave(ticket)
        if self._draining and not self._open:
            self._drained.set()

    def _leave(self, ticket: Ticket[R]) -> None:
        """Nothing is to be done for this request any more; others that share a row with it still get theirs."""
        for index, work in enumerate(ticket.works):
            work.items.pop((ticket, index), None)
            if not work.items:
                self._forget([work])
        self._lanes[ticket.lane].remove(ticket)
        if self._preparation is not None:
            self._preparation.discard(ticket)

    def _end(self, ticket: Ticket[R], error: Exception) -> None:
        """End a request with an exception of its own; one that has ended already is left as it is."""
        if not ticket.future.done():
            ticket.future.set_exception(own_copy(error))
        self._leave(ticket)

    def _fail(self, works: Sequence[Work], error: Exception) -> None:
        for ticket in {ticket: None for work in works for ticket, _ in work.items}:
            self._end(ticket, error)

    def _expire(self, ticket: Ticket[R]) -> None:
        waited_ms = (self._clock() - ticket.arrived) * 1000
        self._end(
            ticket, DeadlineExceeded(f"The answer could not be ready within the deadline; waited {waited_ms:.0f} ms.")
        )

    def _lower_budget(self, failed_tokens: int) -> None:
        lower = max(self._policy.min_batch_tokens, min(self.max_batch_tokens, failed_tokens) // 2)
        if lower < self.max_batch_tokens:
            self.max_batch_tokens = lower
            self._facts.budget_lowered(lower)

    def _worker_lost(self, error: WorkerDied) -> None:
        self._facts.worker_lost(error, self._pool.workers)
        if isinstance(error, WorkerSilent):
            self.stop(NotReady(f"{error} This replica must be restarted."))
        elif self._pool.workers == 0:
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
