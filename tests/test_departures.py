"""What is said of each batch that leaves, and of what its requests waited for; on a virtual clock."""

import asyncio
from typing import Any

import pytest

from app.batching import NO_BATCH, Answer, Batcher, Departure, ServiceLaw
from tests.simulated import Device, Tally, batcher_over, settle, start
from tests.virtual_clock import run_virtually


async def ask(batcher: Batcher[Any, Any], *items: Any, size: int = 1, **options: Any) -> "asyncio.Task[Answer[Any]]":
    """Submit in the background; returns the task that has the whole answer."""
    task = asyncio.create_task(batcher.submit(items, [size] * len(items), **options))
    await settle()
    return task


def test_who_comes_to_an_idle_device_waited_for_nothing_and_who_comes_later_for_the_device() -> None:
    async def main() -> None:
        async with batcher_over(Device()) as batcher:
            first, second = await ask(batcher, "a"), await ask(batcher, "b")
            assert ((await first).waited_for, (await second).waited_for) == ("nothing", "device")
            assert ((await first).batch.number, (await second).batch.number) == (1, 2)

    run_virtually(main())


def test_who_did_not_fit_waited_for_the_budget() -> None:
    async def main() -> None:
        async with batcher_over(Device(), max_batch_items=2) as batcher:
            await start(batcher, "busy")
            calls = [await ask(batcher, i) for i in range(5)]
            assert [(await call).waited_for for call in calls] == ["device", "device", "budget", "budget", "budget"]

    run_virtually(main())


def test_a_list_that_needs_several_batches_waited_for_the_budget() -> None:
    async def main() -> None:
        async with batcher_over(Device(), max_batch_items=4) as batcher:
            answer = await batcher.submit(list(range(10)), [1] * 10)
            assert (answer.waited_for, answer.batches, answer.batch.items) == ("budget", 3, 2)

    run_virtually(main())


def test_bulk_that_is_held_back_for_queries_waited_for_its_lane() -> None:
    async def main() -> None:
        tally = Tally()
        devices = [Device(base_s=1.0) for _ in range(3)]
        async with batcher_over(
            *devices, devices=["cpu"] * 3, side_by_side=2, max_batch_items=4, facts=tally
        ) as batcher:
            running = await start(batcher, *range(8), lane="bulk")
            late = await ask(batcher, "bulk", lane="bulk")
            query = await ask(batcher, "a query")
            assert (await late).waited_for == "lane"
            assert (await query).waited_for == "nothing"
            assert [batch.closed for batch in tally.departures[:3]] == ["items", "drained", "lane"]
            await running

    run_virtually(main())


def test_who_was_held_for_others_to_come_waited_for_growth() -> None:
    async def main() -> None:
        async with batcher_over(Device(), max_wait_s=0.05) as batcher:
            held = await ask(batcher, "a")
            assert (await held).waited_for == "growth"
            busy = await ask(batcher, *range(8))
            assert (await busy).waited_for == "nothing", "a full batch is not held"

    run_virtually(main())


def test_a_row_that_is_on_its_way_already_is_waited_for_by_nobody() -> None:
    async def main() -> None:
        async with batcher_over(Device(), alike=lambda item: item) as batcher:
            first = await ask(batcher, "a")
            await asyncio.sleep(0.05)
            second = await ask(batcher, "a")
            assert (await second).waited_for == "nothing"
            assert (await second).batch == (await first).batch

    run_virtually(main())


@pytest.mark.parametrize(
    ("sizes", "options", "closed"),
    [
        ([1, 1], {}, "drained"),
        ([1] * 5, {"max_batch_items": 4}, "items"),
        ([6, 6], {"max_batch_tokens": 10}, "tokens"),
    ],
)
def test_a_batch_says_why_it_holds_no_more(sizes: list[int], options: dict[str, Any], closed: str) -> None:
    async def main() -> None:
        tally = Tally()
        async with batcher_over(Device(), facts=tally, **options) as batcher:
            await asyncio.gather(*[batcher.submit([i], [size]) for i, size in enumerate(sizes)])
            assert tally.departures[0].closed == closed
            assert tally.departures[-1].closed == "drained"

    run_virtually(main())


def test_a_departure_tells_its_size_its_padding_and_what_was_predicted_of_it() -> None:
    async def main() -> None:
        tally = Tally()
        law = ServiceLaw(0.1, 0.001)
        device = Device(base_s=0.1, item_s=0.01)
        async with batcher_over(
            device, facts=tally, law=law, computed_tokens=lambda sizes: max(sizes) * len(sizes), max_batch_tokens=100
        ) as batcher:
            await asyncio.gather(batcher.submit([1], [10]), batcher.submit([2], [30]))
            (batch,) = tally.departures
            assert (batch.items, batch.tokens, batch.computed_tokens, batch.max_tokens) == (2, 40, 60, 100)
            assert batch.predicted_s == pytest.approx(0.1 + 0.001 * 40)
            assert batch.padding == pytest.approx(1 / 3)
            assert batch.full == pytest.approx(0.4)

    run_virtually(main())


def test_no_batch_has_neither_padding_nor_size() -> None:
    assert (NO_BATCH.padding, NO_BATCH.full) == (0, 0)
    assert Departure(0.0, 1, 1, 5, 0, 0, "drained", 0, 0).padding == 0


def test_tags_are_told_with_the_batch_that_carried_their_requests() -> None:
    async def main() -> None:
        tally = Tally()
        async with batcher_over(Device(), facts=tally) as batcher:
            await asyncio.gather(batcher.submit([1], [1], tag="t"), batcher.submit([2], [1]))
            assert tally.tags == ["t"]

    run_virtually(main())


def test_busy_seconds_count_time_with_any_batch_once_and_go_on_while_one_runs() -> None:
    async def main() -> None:
        devices = [Device(base_s=1.0), Device(base_s=1.0), Device(base_s=1.0)]
        async with batcher_over(*devices, devices=["a", "a", "b"], max_batch_items=1) as batcher:
            assert batcher.busy_seconds() == [0, 0]
            calls = [await start(batcher, i) for i in range(3)]
            await asyncio.sleep(0.5)
            assert batcher.busy_seconds() == pytest.approx([0.5, 0.5])
            await asyncio.gather(*calls)
            await asyncio.sleep(3)
            assert batcher.busy_seconds() == pytest.approx([1, 1])

    run_virtually(main())
