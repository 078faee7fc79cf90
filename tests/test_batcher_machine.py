"""The batcher under any sequence of events: requests, departures, faults and pauses, in whatever order they come.

A model is told of all that happens, and says after each step what must be true: what waits, what may travel, who has
ended and how.
"""

import asyncio
import math
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from app.batching import LANES, Answer, Departure, LaneName, Outcome, Prepared, ServiceLaw
from app.batching.deadlines import RESOLUTION_S
from app.errors import (
    BackendFailed,
    ConvoyError,
    DeadlineExceeded,
    InvalidInput,
    NotAccepted,
    OutOfMemory,
    QueueFull,
    ShuttingDown,
    WouldBeLate,
)
from tests.simulated import Device, Tally, batcher_over, settle
from tests.virtual_clock import VirtualClockLoop, now

T = TypeVar("T")

SIZES = {"a": 1, "b": 2, "c": 5, "d": 12, "odd": 3}
"""Texts that come again and again, and their tokens; preparation refuses the odd one."""
MOST_TOKENS = 12
ITEM_S = 0.001
LEAST_RUN_S = 0.0005
SLOWEST_RUN_S = 1.1
PREPARE_S = 0.003
PRESENCE_S = 0.4
TINY = 1e-9


# --- what there is --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """What stays as it is during one run."""

    workers: int
    own_devices: bool
    """Whether each worker has one of its own."""
    max_batch_items: int
    max_batch_tokens: int
    target_batch_s: float
    least_short_tokens: int
    max_queue_items: int
    max_queue_tokens: int
    bulk_share: float
    base_s: float
    law_says: float
    """How many times what batches take is believed at the start; 0 where nothing is known."""
    shares_rows: bool
    prepares: bool
    estimated_too_high_by: int
    """Tokens of each item, where they are prepared."""
    has_deadlines: bool


worlds = st.builds(
    World,
    workers=st.sampled_from([1, 2]),
    own_devices=st.booleans(),
    max_batch_items=st.integers(1, 10),
    max_batch_tokens=st.integers(8, 60),
    target_batch_s=st.sampled_from([0.0, 0.0, 0.01]),
    least_short_tokens=st.sampled_from([1, 8, 1000]),
    max_queue_items=st.sampled_from([10, 50, 200]),
    max_queue_tokens=st.sampled_from([100, 300, 2000]),
    bulk_share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    base_s=st.sampled_from([0.005, 0.1]),
    law_says=st.sampled_from([0.0, 0.5, 1.0, 1.0, 30.0]),
    shares_rows=st.booleans(),
    prepares=st.booleans(),
    estimated_too_high_by=st.sampled_from([0, 3]),
    has_deadlines=st.booleans(),
)
hurried_worlds = worlds.map(
    lambda world: replace(
        world, workers=1, max_batch_items=10 + world.max_batch_items, max_batch_tokens=60, target_batch_s=0.0,
        least_short_tokens=1000, max_queue_items=500, max_queue_tokens=5000, base_s=0.005, law_says=1.0,
        prepares=False, has_deadlines=True,
    )
)  # fmt: skip
"""Nothing but deadlines stands in the way of what comes."""
crowded_worlds = st.builds(
    World,
    workers=st.sampled_from([1, 2]),
    own_devices=st.booleans(),
    max_batch_items=st.integers(1, 30),
    max_batch_tokens=st.integers(2 * MOST_TOKENS, 100),
    target_batch_s=st.just(0.0),
    least_short_tokens=st.sampled_from([2 * MOST_TOKENS, 1000]),
    max_queue_items=st.just(1000),
    max_queue_tokens=st.just(10_000),
    bulk_share=st.sampled_from([0.1, 0.25, 0.5]),
    base_s=st.sampled_from([0.005, 0.1]),
    law_says=st.just(0.0),
    shares_rows=st.just(False),
    prepares=st.just(False),
    estimated_too_high_by=st.just(0),
    has_deadlines=st.just(False),
)
"""There is room for long queues in both lanes, and nothing but the share decides who goes: an urgent request may go
before what bulk is owed, a row that interactive waits for too is not bulk's alone."""


texts = st.sampled_from([*"abcdabcd", "odd"]) | st.integers(1, MOST_TOKENS)
"""One that others have too, or the tokens of one that nobody else has."""
deadlines = st.none() | st.sampled_from([0.5, 1.2, 2.0, 3.0, 10.0])
"""In so many times what a full batch takes."""


class Item(NamedTuple):
    """One input: the request that brings it, its place there, its text, its tokens."""

    request: int
    place: int
    text: str
    tokens: int


@dataclass(eq=False)
class Request:
    """One call, what the model knew when it came, and how it ended."""

    items: list[Item]
    lane: LaneName
    deadline: float | None
    came_at: float
    refusal: type[ConvoyError] | None
    """What it must be refused with, whatever its deadline."""
    batches_before: int
    in_flight: set[str]
    """Texts of batches that were with a worker when it came."""
    task: "asyncio.Task[None] | None" = None
    answer: Answer[Any] | None = None
    error: BaseException | None = None
    ended_at: float | None = None
    cancelled: bool = False

    @property
    def accepted(self) -> bool:
        return self.refusal is None and not isinstance(self.error, NotAccepted)

    @property
    def outcome(self) -> Outcome:
        """What the batcher should have counted it as."""
        if self.error is None:
            return "answered"
        if isinstance(self.error, asyncio.CancelledError):
            return "abandoned"
        if isinstance(self.error, DeadlineExceeded):
            return "expired"
        return "failed" if self.accepted else "shed"


@dataclass
class Faults:
    """What is wrong with all workers at present."""

    letters: set[str] = field(default_factory=set)
    """They fail on texts that begin so."""
    memory_items: int = 1000

    def __call__(self, payloads: list[Any]) -> None:
        if len(payloads) > self.memory_items:
            raise OutOfMemory("too many")
        if any(item.text[0] in self.letters for item in payloads):
            raise ValueError("a text that fails")


class WatchedDevice(Device):
    """Shows the model what reaches it."""

    def __init__(self, model: "BatcherMachine", base_s: float) -> None:
        super().__init__(base_s, ITEM_S, model.faults)
        self.model = model
        self.busy = False
        self.batch: list[Item] = []
        """The last that was dispatched to it; after a failure, parts of it come again."""

    async def __call__(self, payloads: list[Any]) -> list[Any]:
        self.model.reached(self, payloads)
        self.busy = True
        try:
            return await super().__call__(payloads)
        finally:
            self.busy = False


class WatchedTally(Tally):
    """Shows the model what is dispatched."""

    def __init__(self, model: "BatcherMachine") -> None:
        super().__init__()
        self.model = model

    def batch_dispatched(self, batch: Departure) -> None:
        super().batch_dispatched(batch)
        self.model.dispatched(batch.items, batch.tokens)


class Dispatched(NamedTuple):
    """A batch that has left and not reached its worker yet, and what it left waiting in each lane."""

    items: int
    tokens: int
    left: dict[LaneName, int]


async def prepare(items: list[Any]) -> list[Prepared | ConvoyError]:
    await asyncio.sleep(PREPARE_S)
    return [InvalidInput("is odd") if item.text == "odd" else Prepared(item, item.tokens) for item in items]


# --- what may happen ------------------------------------------------------------------------------------------------


class BatcherMachine(RuleBasedStateMachine):
    """The batcher and its model."""

    @initialize(world=worlds)
    def begin(self, world: World) -> None:
        self.world = world
        self.loop = VirtualClockLoop()
        self.faults = Faults()
        self.devices = [WatchedDevice(self, world.base_s) for _ in range(world.workers)]
        self.tally = WatchedTally(self)
        self.requests: list[Request] = []
        self.draining = False
        self.letters_that_failed: set[str] = set()
        self.wrong: list[str] = []
        self.on_their_way: deque[Dispatched] = deque()
        self.batches = 0
        self.gone: set[Item] = set()
        """Those that a worker was given, each for itself and for all who share with it."""
        self.last_batch_of: dict[str, int] = {}
        """Of each text, the number of the last batch with it."""
        self.interactive_at = -math.inf
        self.owed_to_bulk = 0.0
        self.largest_batch = 0
        self.batcher = batcher_over(
            *self.devices,
            facts=self.tally,
            devices=None if world.own_devices else ["shared"] * world.workers,
            law=ServiceLaw(world.law_says * world.base_s, world.law_says * ITEM_S),
            prepare=prepare if world.prepares else None,
            alike=(lambda item: item.text) if world.shares_rows else (lambda item: None),
            max_batch_items=world.max_batch_items,
            max_batch_tokens=world.max_batch_tokens,
            min_batch_tokens=min(2 * MOST_TOKENS, world.max_batch_tokens),
            target_batch_s=world.target_batch_s,
            least_short_tokens=world.least_short_tokens,
            presence_s=PRESENCE_S,
            max_queue_items=world.max_queue_items,
            max_queue_tokens=world.max_queue_tokens,
            bulk_share=world.bulk_share,
        )
        self.run(self.batcher.__aenter__())

    def run(self, event: Coroutine[Any, Any, T]) -> T:
        """Let this happen, and all that follows from it without time passing."""
        outcome = self.loop.run_until_complete(event)
        self.loop.run_until_complete(settle())
        return outcome

    @rule(texts=st.lists(texts, min_size=1, max_size=12), lane=st.sampled_from(LANES), deadline_runs=deadlines)
    def a_request_comes(self, texts: list[str | int], lane: LaneName, deadline_runs: float | None) -> None:
        number, now_s = len(self.requests), self.loop.time()
        items = [
            Item(number, i, text, SIZES[text]) if isinstance(text, str) else Item(number, i, f"own {number} {i}", text)
            for i, text in enumerate(texts)
        ]
        request = Request(
            items,
            lane,
            now_s + deadline_runs * self.run_s if deadline_runs is not None and self.world.has_deadlines else None,
            now_s,
            self.refusal_of(items),
            self.batches,
            {item.text for device in self.devices if device.busy for item in device.batch},
        )
        self.requests.append(request)
        before = self.interactive_at
        if lane == "interactive" and request.accepted:
            self.interactive_at = now_s
        request.task = self.loop.create_task(self.live(request))
        self.run(settle())
        if not request.accepted:
            self.interactive_at = before
        assert request.refusal is None or type(request.error) is request.refusal

    @rule(several=st.lists(texts, min_size=1, max_size=8), lane=st.sampled_from(LANES), deadline_runs=deadlines)
    def queries_come(self, several: list[str | int], lane: LaneName, deadline_runs: float | None) -> None:
        for text in several:
            self.a_request_comes([text], lane, deadline_runs)

    @rule(interactive=st.integers(1, MOST_TOKENS), bulk=st.integers(1, MOST_TOKENS), count=st.integers(2, 30))
    def both_lanes_fill(self, interactive: int, bulk: int, count: int) -> None:
        self.a_request_comes([interactive] * count, "interactive", None)
        self.a_request_comes([bulk] * count, "bulk", None)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 1000))
    def a_client_leaves(self, which: int) -> None:
        request = self.open[which % len(self.open)]
        assert request.task is not None
        request.cancelled = True
        request.task.cancel()
        self.run(settle())
        assert isinstance(request.error, asyncio.CancelledError)

    @rule(runs=st.sampled_from([0.01, 0.5, 1.0, 2.0]))
    def a_moment_passes(self, runs: float) -> None:
        self.run(asyncio.sleep(runs * self.run_s))

    @rule(runs=st.integers(3, 30))
    def a_while_passes(self, runs: int) -> None:
        for _ in range(runs):
            self.run(asyncio.sleep(self.run_s))
            self.nothing_went_wrong_inside()
            self.what_waits_is_what_was_accepted_and_has_not_gone()

    @rule(letters=st.sets(st.sampled_from("abcdo"), min_size=1, max_size=2))
    def the_device_begins_to_fail_on_some_texts(self, letters: set[str]) -> None:
        self.faults.letters = letters
        self.letters_that_failed |= letters

    @rule(items=st.integers(1, 5))
    def the_device_has_no_memory_for_more_items(self, items: int) -> None:
        self.faults.memory_items = items

    @rule()
    def the_device_heals(self) -> None:
        self.faults.letters, self.faults.memory_items = set(), 1000

    @rule(times=st.sampled_from([0.1, 1.0, 3.0, 10.0]))
    def the_device_changes_its_pace(self, times: float) -> None:
        for device in self.devices:
            device.base_s = times * self.world.base_s

    @rule(times=st.sampled_from([2.0, 3.5, 6.0]))
    def one_batch_is_held_up(self, times: float) -> None:
        """Nobody could foresee it: who is accepted in the meantime may turn out to be late."""
        usual = [device.base_s for device in self.devices]
        for device in self.devices:
            device.base_s = times * self.run_s
        self.a_request_comes([1], "interactive", None)
        for device, base_s in zip(self.devices, usual, strict=True):
            device.base_s = base_s

    def teardown(self) -> None:
        """Drain: all that was accepted ends within the time that its batches can take, and nothing is left."""
        try:
            self.drain()
            assert not self.open, "a call was left unanswered"
            for lane in LANES:
                assert self.batcher.waiting_items(lane) == self.batcher.waiting_tokens(lane) == 0
            self.each_item_that_has_ended_is_counted_once_as_what_it_ended_as()
            self.each_request_that_has_ended_ended_as_it_had_to()
            self.nothing_went_wrong_inside()
        finally:
            self.run(self.batcher.__aexit__(None, None, None))
            self.loop.close()

    def drain(self) -> None:
        most_runs = 2 * (sum(len(request.items) for request in self.open) + self.world.workers * 30)
        drained = self.loop.create_task(self.batcher.drain())
        self.run(settle())
        self.draining = True
        self.a_request_comes(["a"], "interactive", None)
        self.run(asyncio.wait_for(drained, most_runs * SLOWEST_RUN_S))

    # --- what the model is told -------------------------------------------------------------------------------------

    async def live(self, request: Request) -> None:
        """The client's side of one call."""
        sizes = [self.estimate(item) for item in request.items]
        try:
            request.answer = await self.batcher.submit(
                request.items, sizes, lane=request.lane, deadline=request.deadline
            )
        except (Exception, asyncio.CancelledError) as error:
            request.error = error
        request.ended_at = now()

    def dispatched(self, items: int, tokens: int) -> None:
        limit = self.batcher.max_batch_tokens
        if now() - self.interactive_at < PRESENCE_S:
            limit = min(limit, self.batcher.short_batch_tokens)
        self.expect(items <= self.world.max_batch_items, f"a batch of {items} items")
        self.expect(items == 1 or tokens <= limit, f"a batch of {tokens} tokens where {limit} are the limit")
        self.expect(self.keeps_its_bounds, "more waits than may")
        self.on_their_way.append(Dispatched(items, tokens, {lane: self.batcher.waiting_items(lane) for lane in LANES}))

    def reached(self, device: WatchedDevice, payloads: list[Item]) -> None:
        wanted = self.wanted
        for item in payloads:
            self.expect((item.text if self.world.shares_rows else item) in wanted, f"{item} is computed for nobody")
        if any(item in self.gone for item in payloads):
            self.expect(set(payloads) < set(device.batch), "what is run again is no part of the batch that failed")
            return
        batch = self.on_their_way.popleft()
        tokens = sum(item.tokens for item in payloads)
        self.expect((batch.items, batch.tokens) == (len(payloads), tokens), "what arrives is not what was dispatched")
        device.batch = payloads
        self.batches += 1
        for item in payloads:
            self.expect(self.is_its_turn(item), f"{item} goes before others of its request")
            self.gone.add(item)
            self.last_batch_of[item.text] = self.batches
        self.owe(batch, payloads)

    def owe(self, batch: Dispatched, payloads: list[Item]) -> None:
        """What bulk falls short of its share, while both lanes have items before each batch and after it."""
        bulk_tokens = sum(item.tokens for item in payloads if self.requests[item.request].lane == "bulk")
        owed = self.owed_to_bulk + self.world.bulk_share * batch.tokens - bulk_tokens
        self.owed_to_bulk = max(0.0, owed) if min(batch.left.values()) > 0 else 0.0
        self.largest_batch = max(self.largest_batch, batch.tokens)

    def expect(self, fact: bool, otherwise: str) -> None:
        """An assertion where the batcher would take one for a failure of its device."""
        if not fact:
            self.wrong.append(f"{self.loop.time():.4f} s: {otherwise}")

    # --- what the model knows ---------------------------------------------------------------------------------------

    @property
    def run_s(self) -> float:
        """What a full batch takes on a device that is well."""
        return self.world.base_s + ITEM_S * self.world.max_batch_items

    @property
    def open(self) -> list[Request]:
        return [request for request in self.requests if request.ended_at is None]

    @property
    def wanted(self) -> set[Item | str]:
        """What somebody waits for, or did until this very moment, when the batch had left already; texts of any item
        that is like them, where rows are shared."""
        return {
            item.text if self.world.shares_rows else item
            for request in self.requests
            if request.ended_at is None or request.ended_at == self.loop.time()
            for item in request.items
        }

    @property
    def keeps_its_bounds(self) -> bool:
        """Whether no more waits than may."""
        items = [self.batcher.waiting_items(lane) for lane in LANES]
        tokens = [self.batcher.waiting_tokens(lane) for lane in LANES]
        fits = sum(items) <= self.world.max_queue_items and sum(tokens) <= self.world.max_queue_tokens
        return fits and min(*items, *tokens) >= 0

    def estimate(self, item: Item) -> int:
        return item.tokens + (self.world.estimated_too_high_by if self.world.prepares else 0)

    def refusal_of(self, items: list[Item]) -> type[ConvoyError] | None:
        """What a request that comes now with these items must be refused with, whatever its deadline."""
        tokens = sum(self.estimate(item) for item in items)
        if self.draining:
            return ShuttingDown
        if tokens > self.world.max_queue_tokens:
            return InvalidInput
        has_room = len(items) <= self.world.max_queue_items - sum(self.batcher.waiting_items(lane) for lane in LANES)
        has_room &= tokens <= self.world.max_queue_tokens - sum(self.batcher.waiting_tokens(lane) for lane in LANES)
        return None if has_room else QueueFull

    def is_its_turn(self, item: Item) -> bool:
        """Whether all have gone that stand before it: in its request, and, where each is a request of its own that can
        wait for ever, in its lane. One that others wait for too may go earlier."""
        if self.world.shares_rows and item.text in SIZES:
            return True
        request = self.requests[item.request]
        before = [(request, other) for other in request.items[: item.place]]
        if self.is_plain(request):
            earlier = [
                one for one in self.requests[: item.request] if one.ended_at is None and one.lane == request.lane
            ]
            before += [(one, one.items[0]) for one in earlier if self.is_plain(one)]
        return all(self.has_gone(*one) for one in before)

    def is_plain(self, request: Request) -> bool:
        return len(request.items) == 1 and request.deadline is None and not self.world.prepares

    def has_gone(self, request: Request, item: Item) -> bool:
        """Whether a worker was given this item of the request, or one like it that counts for it."""
        if not self.world.shares_rows:
            return item in self.gone
        return item.text in request.in_flight or self.last_batch_of.get(item.text, 0) > request.batches_before

    # --- what must be true ------------------------------------------------------------------------------------------

    @invariant()
    def nothing_went_wrong_inside(self) -> None:
        assert not self.wrong
        assert not self.tally.stopped
        assert self.batcher.alive
        law = self.batcher.law
        for figure in (law.error, law.base_s, law.slope_s, law.seconds(1000)):
            assert -TINY <= figure < math.inf

    @invariant()
    def what_waits_is_what_was_accepted_and_has_not_gone(self) -> None:
        assert self.keeps_its_bounds
        for lane in LANES:
            left = [
                item
                for request in self.open
                if request.lane == lane
                for item in request.items
                if self.world.shares_rows or item not in self.gone
            ]
            items, tokens = self.batcher.waiting_items(lane), self.batcher.waiting_tokens(lane)
            assert items <= len(left)
            assert tokens <= sum(self.estimate(item) for item in left)
            if not self.world.shares_rows:
                assert items == len(left)
                assert tokens >= sum(item.tokens for item in left)

    @invariant()
    def no_worker_is_idle_while_something_waits(self) -> None:
        """But for bulk: where workers share a device and interactive requests come, it does not run beside others."""
        idle = [device for device in self.devices if not device.busy]
        if idle and not self.world.prepares:
            assert self.batcher.waiting_items("interactive") == 0
            assert self.batcher.waiting_items("bulk") == 0 or (
                not self.world.own_devices and len(idle) < self.world.workers
            )

    @invariant()
    def each_item_that_has_ended_is_counted_once_as_what_it_ended_as(self) -> None:
        counted = dict.fromkeys(self.tally.ended, 0)
        for request in self.requests:
            if request.ended_at is not None:
                counted[request.outcome] += len(request.items)
        assert self.tally.ended == counted

    @invariant()
    def each_request_that_has_ended_ended_as_it_had_to(self) -> None:
        for request in self.requests:
            if request.ended_at is None:
                assert request.refusal is None
                assert request.deadline is None or self.loop.time() <= request.deadline + RESOLUTION_S + TINY
                continue
            assert request.deadline is None or request.ended_at <= request.deadline + RESOLUTION_S + TINY
            if request.answer is not None:
                self.check_answer(request, request.answer, request.ended_at)
            else:
                self.check_error(request)

    def check_answer(self, request: Request, answer: Answer[Any], ended_at: float) -> None:
        """All rows are there, in the order of the items, computed after the request came; the bill adds up."""
        assert request.refusal is None
        assert len(answer.rows) == len(request.items)
        for (_, made_from), item in zip(answer.rows, request.items, strict=True):
            assert made_from.text == item.text
            assert made_from == item or self.world.shares_rows
            assert self.has_gone(request, item)
        assert answer.batches >= 1
        assert answer.tokens == sum(item.tokens for item in request.items)
        if not self.world.shares_rows and self.world.workers == 1:
            assert answer.run_s >= LEAST_RUN_S * answer.batches
        bill = (answer.prepare_s, answer.queue_s, answer.run_s)
        assert min(bill) >= -TINY
        assert sum(bill) == pytest.approx(ended_at - request.came_at, abs=TINY)

    def check_error(self, request: Request) -> None:
        """It is one that this request could end with."""
        error = request.error
        if isinstance(error, NotAccepted):
            assert 1 <= error.retry_after_s < math.inf
            assert request.ended_at == request.came_at
        if request.refusal is not None:
            assert type(error) is request.refusal
        elif isinstance(error, asyncio.CancelledError):
            assert request.cancelled
        elif isinstance(error, DeadlineExceeded | WouldBeLate):
            assert request.deadline is not None
        elif isinstance(error, InvalidInput):
            assert self.world.prepares
            assert request.items[error.index or 0].text == "odd"
        else:
            assert type(error) is BackendFailed
            assert any(item.text[0] in self.letters_that_failed for item in request.items)


class HurriedMachine(BatcherMachine):
    """The same where the device is usually as fast as predicted, and what comes is accepted on that account."""

    @initialize(world=hurried_worlds)
    def begin(self, world: World) -> None:
        super().begin(world)

    @rule(
        times=st.sampled_from([2.0, 3.0]),
        patient=st.lists(st.lists(texts, min_size=1, max_size=6), min_size=1, max_size=8),
        urgent=st.lists(st.lists(texts, min_size=1, max_size=3), min_size=1, max_size=3),
        deadline_runs=st.floats(1.5, 5.0),
    )
    def urgent_ones_come_after_patient_ones_while_a_batch_is_held_up(
        self,
        times: float,
        patient: list[list[str | int]],
        urgent: list[list[str | int]],
        deadline_runs: float,
    ) -> None:
        self.one_batch_is_held_up(times)
        for one in patient:
            self.a_request_comes(one, "interactive", None)
        for one in urgent:
            self.a_request_comes(one, "interactive", deadline_runs)


class CrowdedMachine(BatcherMachine):
    """The same where both lanes are full for long."""

    @initialize(world=crowded_worlds)
    def begin(self, world: World) -> None:
        super().begin(world)

    @invariant()
    def bulk_is_never_owed_more_than_an_item_and_its_share_of_a_batch(self) -> None:
        assert self.owed_to_bulk <= MOST_TOKENS + self.world.bulk_share * self.largest_batch + TINY


# --- the tests ------------------------------------------------------------------------------------------------------


def run(machine: type[BatcherMachine], runs: int) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=runs, stateful_step_count=40, deadline=None))


def test_whatever_happens_in_whatever_order_the_batcher_keeps_all_its_promises() -> None:
    run(BatcherMachine, 200)


def test_with_deadlines_that_can_just_be_met_or_not_the_batcher_keeps_all_its_promises() -> None:
    run(HurriedMachine, 200)


def test_while_both_lanes_are_full_bulk_is_owed_no_more_than_an_item_and_its_share_of_a_batch() -> None:
    run(CrowdedMachine, 120)
