"""What holds for the batcher whatever clients, deadlines and faults come together."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching import LANES, Batcher, Prepared
from app.errors import ConvoyError, OutOfMemory, QueueFull
from tests.simulated import Device, Tally, batcher_over, waiting
from tests.virtual_clock import run_virtually

BAD = "bad"


@dataclass
class Request:
    """One client: when it comes, what it brings, how long it has, when it loses patience."""

    comes_at: float
    sizes: list[int]
    bad: set[int]
    deadline_s: float | None
    leaves_after_s: float | None
    items: list[tuple[str, int, int]] = field(default_factory=list)
    outcome: Any = None


requests = st.builds(
    Request,
    comes_at=st.floats(0, 2).map(lambda t: round(t, 2)),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    bad=st.sets(st.integers(0, 11), max_size=1),
    deadline_s=st.none() | st.floats(0.01, 1),
    leaves_after_s=st.none() | st.floats(0, 1),
)


@dataclass(frozen=True)
class World:
    workers: int
    max_batch_items: int
    max_batch_tokens: int
    max_queue_items: int
    base_s: float
    memory_items: int
    prepares: bool


worlds = st.builds(
    World,
    workers=st.sampled_from([1, 3]),
    max_batch_items=st.integers(1, 10),
    max_batch_tokens=st.integers(5, 40),
    max_queue_items=st.integers(3, 40),
    base_s=st.sampled_from([0.001, 0.05, 0.5]),
    memory_items=st.integers(1, 12),
    prepares=st.booleans(),
)


async def prepare(items: list[Any]) -> list[Prepared]:
    await asyncio.sleep(0.003)
    return [Prepared(item, item[2]) for item in items]


def device_of(world: World) -> Device:
    def fault(payloads: list[Any]) -> None:
        if len(payloads) > world.memory_items:
            raise OutOfMemory("too many")
        if any(kind == BAD for kind, _, _ in payloads):
            raise ValueError("a bad item")

    return Device(world.base_s, 0.001, fault)


async def act(batcher: Batcher[Any, Any], request: Request) -> None:
    """Live one client's life and note how it ended."""
    await asyncio.sleep(request.comes_at)
    deadline = None
    if request.deadline_s is not None:
        deadline = asyncio.get_running_loop().time() + request.deadline_s
    call = asyncio.create_task(batcher.submit(request.items, request.sizes, deadline=deadline))
    if request.leaves_after_s is not None:
        await asyncio.wait([call], timeout=request.leaves_after_s)
        call.cancel()
    (request.outcome,) = await asyncio.gather(call, return_exceptions=True)


async def live(world: World, clients: list[Request]) -> tuple[Tally, list[Device], list[int]]:
    tally, devices = Tally(), [device_of(world) for _ in range(world.workers)]
    places: list[int] = []
    for number, request in enumerate(clients):
        request.items = [
            (BAD if i in request.bad else "good", 100 * number + i, size) for i, size in enumerate(request.sizes)
        ]
    batcher = batcher_over(
        *devices,
        facts=tally,
        max_batch_items=world.max_batch_items,
        max_batch_tokens=world.max_batch_tokens,
        max_queue_items=world.max_queue_items,
        prepare=prepare if world.prepares else None,
    )
    async with batcher:

        async def watch() -> None:
            while True:
                places.append(waiting(batcher))
                await asyncio.sleep(0.01)

        watcher = asyncio.create_task(watch())
        await asyncio.gather(*[act(batcher, request) for request in clients])
        watcher.cancel()
        async with asyncio.timeout(1000):
            await batcher.drain()
        assert waiting(batcher) == 0
        assert sum(batcher.waiting_tokens(lane) for lane in LANES) == 0
    return tally, devices, places


@settings(max_examples=200, deadline=None)
@given(worlds, st.lists(requests, max_size=25))
def test_every_item_ends_once_every_answer_is_right_and_no_bound_is_broken(
    world: World, clients: list[Request]
) -> None:
    tally, devices, places = run_virtually(live(world, clients))

    assert sum(tally.ended.values()) == sum(len(request.sizes) for request in clients)
    assert max(places, default=0) <= world.max_queue_items
    assert not tally.stopped
    for request in clients:
        outcome = request.outcome
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, ConvoyError | asyncio.CancelledError)
            assert not isinstance(outcome, QueueFull) or tally.ended["shed"]
        else:
            assert outcome.rows == [("row", item) for item in request.items]
            assert not request.bad & set(range(len(request.sizes)))
            assert min(outcome.prepare_s, outcome.queue_s, outcome.run_s) >= -1e-9
    for device in devices:
        for batch in device.batches:
            assert len(batch) <= world.max_batch_items
            assert len(batch) == 1 or sum(size for _, _, size in batch) <= world.max_batch_tokens


@settings(max_examples=100, deadline=None)
@given(worlds.filter(lambda world: world.workers == 1), st.lists(requests, max_size=25))
def test_items_leave_in_the_order_of_their_request_and_single_ones_in_that_of_arrival(
    world: World, clients: list[Request]
) -> None:
    for request in clients:
        request.bad = set()
    world = World(**{**world.__dict__, "memory_items": 100})
    clients.sort(key=lambda request: request.comes_at)
    for number, request in enumerate(clients):
        request.comes_at += number * 1e-6  # equal timers of asyncio come in no particular order
    _, (device,), _ = run_virtually(live(world, clients))
    left = [number for batch in device.batches for _, number, _ in batch]
    for client in range(len(clients)):
        own = [number for number in left if number // 100 == client]
        assert own == sorted(own)
    singles = [number for number in left if len(clients[number // 100].sizes) == 1]
    assert singles == sorted(singles)


@settings(max_examples=50, deadline=None)
@given(worlds, st.lists(requests, min_size=1, max_size=15))
def test_without_deadlines_faults_or_impatience_all_that_is_accepted_is_answered(
    world: World, clients: list[Request]
) -> None:
    for request in clients:
        request.bad, request.deadline_s, request.leaves_after_s = set(), None, None
    tally, _, _ = run_virtually(live(world, clients))
    assert tally.ended["answered"] + tally.ended["shed"] == sum(len(request.sizes) for request in clients)
    refused = [request for request in clients if isinstance(request.outcome, QueueFull)]
    assert tally.ended["shed"] == sum(len(request.sizes) for request in refused)
