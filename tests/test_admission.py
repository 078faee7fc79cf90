"""Admission: what may wait, and what is refused before any work is done on it."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching import LANES, LaneName, Prepared, ServiceLaw
from app.errors import InvalidInput, QueueFull, WouldBeLate
from tests.simulated import Device, Tally, batcher_over, start, submit, waiting
from tests.virtual_clock import now, run_virtually


def test_tokens_are_bounded_as_items_are_for_lists_and_single_ones_alike() -> None:
    async def main() -> None:
        tally = Tally()
        async with batcher_over(Device(), facts=tally, max_queue_tokens=100) as batcher:
            running = await start(batcher, "first", size=100)
            held = await start(batcher, *range(9), size=10)
            for items, size in ((["one"], 11), ([1, 2], 6)):
                with pytest.raises(QueueFull, match=r"room for 10 more tokens.*limit 100, --max-queue-tokens"):
                    await submit(batcher, *items, size=size, lane="bulk")
            assert await submit(batcher, "fits", size=10) == ["fits"]
            await asyncio.gather(running, held)
            assert tally.ended["shed"] == 3

    run_virtually(main())


def test_what_the_queue_could_never_hold_is_invalid_rather_than_refused_for_now() -> None:
    async def main() -> None:
        async with batcher_over(Device(), max_queue_tokens=100) as batcher:
            with pytest.raises(InvalidInput, match=r"101 tokens; the limit is 100"):
                await submit(batcher, "huge", size=101)
            assert waiting(batcher) == 0

    run_virtually(main())


def test_who_would_be_answered_too_late_is_told_at_once_and_when_to_come_back() -> None:
    async def main() -> None:
        device = Device(base_s=0.5)
        async with batcher_over(device, law=ServiceLaw(0.5), max_batch_items=1) as batcher:
            accepted = [await start(batcher, i, deadline=60) for i in range(20)]
            with pytest.raises(WouldBeLate, match=r"10505 ms.* 2000 ms") as refused:
                await submit(batcher, "late", deadline=2.0)
            assert now() == 0
            assert refused.value.retry_after_s == pytest.approx(8.505)
            await asyncio.gather(*accepted)

    run_virtually(main())


def test_a_refusal_never_names_a_time_within_the_deadline() -> None:
    """The time to write the answer counts, and is what decides here."""

    async def main() -> None:
        async with batcher_over(Device(base_s=0.5), law=ServiceLaw(0.5), max_batch_items=1) as batcher:
            running = await start(batcher, "first", deadline=60)
            with pytest.raises(WouldBeLate, match=r"1005 ms.* 1002 ms"):
                await submit(batcher, "late", deadline=1.0029)
            await running

    run_virtually(main())


def test_a_refused_request_costs_no_preparation() -> None:
    calls: list[Any] = []

    async def prepare(items: list[Any]) -> list[Prepared]:
        calls.append(items)
        return [Prepared(item, 1) for item in items]

    async def main() -> None:
        async with batcher_over(
            Device(base_s=1), law=ServiceLaw(1), prepare=prepare, max_queue_items=3, max_queue_tokens=50
        ) as batcher:
            running = await start(batcher, "first")
            held = await start(batcher, "second")
            for options in ({"deadline": 0.5}, {"size": 50}):
                with pytest.raises((WouldBeLate, QueueFull)):
                    await submit(batcher, "refused", **options)
            with pytest.raises(QueueFull):
                await submit(batcher, *["refused"] * 3)
            await asyncio.gather(running, held)
            assert calls == [["first"], ["second"]]

    run_virtually(main())


def test_an_idle_device_refuses_nobody_on_account_of_a_prediction() -> None:
    async def main() -> None:
        async with batcher_over(Device(base_s=0.1), law=ServiceLaw(1000.0)) as batcher:
            assert await submit(batcher, "one", deadline=1.0) == ["one"]

    run_virtually(main())


def test_a_short_request_is_not_refused_on_account_of_a_long_one_that_takes_turns_with_it() -> None:
    async def main() -> None:
        device = Device(base_s=0.01, item_s=0.01)
        async with batcher_over(
            device, law=ServiceLaw(0.01, 0.0001), max_batch_items=4, max_queue_items=2000, max_queue_tokens=200_000
        ) as batcher:
            long = await start(batcher, *range(1000), lane="bulk", size=100)
            short = await submit(batcher, "a", "b", lane="bulk", size=100, deadline=0.3)
            assert short == ["a", "b"]
            assert now() <= 0.3
            long.cancel()

    run_virtually(main())


def test_bulk_is_accepted_by_what_is_left_for_it() -> None:
    """Beside interactive work that fills every batch, bulk counts on its share and no more."""

    async def main() -> None:
        device = Device(base_s=0.01, item_s=0.001)
        async with batcher_over(
            device, law=ServiceLaw(0.01, 0.001), max_batch_items=100, max_batch_tokens=100, max_queue_items=100_000
        ) as batcher:
            people = [asyncio.create_task(submit(batcher, *range(2000))) for _ in range(4)]
            bulk = asyncio.create_task(submit(batcher, *range(200), lane="bulk"))
            await asyncio.sleep(1)
            # 8,000 interactive items take 8.8 s; until then, bulk gets ten items of each batch of 0.11 s
            with pytest.raises(WouldBeLate):
                await submit(batcher, *range(300), lane="bulk", deadline=now() + 2)
            in_time = await submit(batcher, *range(100), lane="bulk", deadline=now() + 8)
            assert len(in_time) == 100
            for task in (*people, bulk):
                task.cancel()

    run_virtually(main())


def test_an_estimate_is_corrected_once_the_tokens_are_counted() -> None:
    async def prepare(items: list[Any]) -> list[Prepared]:
        await asyncio.sleep(0.01)
        return [Prepared(item, 7) for item in items]

    async def main() -> None:
        async with batcher_over(Device(), prepare=prepare, max_queue_tokens=50) as batcher:
            running = await start(batcher, "first")
            await asyncio.sleep(0.02)
            held = await start(batcher, "second", size=40)
            assert batcher.waiting_tokens("interactive") == 40
            await asyncio.sleep(0.02)
            assert batcher.waiting_tokens("interactive") == 7
            more = await start(batcher, "third", size=43)
            await asyncio.gather(running, held, more)
            assert batcher.waiting_tokens("interactive") == 0

    run_virtually(main())


@given(
    waiting_items=st.lists(st.tuples(st.sampled_from(["interactive", "bulk"]), st.integers(1, 30)), max_size=8),
    items=st.integers(1, 40),
    base_ms=st.integers(1, 1000),
    slope_ms=st.integers(1, 50),
    max_items=st.integers(1, 20),
    workers=st.integers(1, 3),
)
def test_what_is_quickly_found_to_be_in_time_would_be_predicted_to_be(
    waiting_items: list[tuple[LaneName, int]], items: int, base_ms: int, slope_ms: int, max_items: int, workers: int
) -> None:
    base_s, slope_s = base_ms / 1000, slope_ms / 1000

    async def main() -> None:
        devices = [Device(base_s=base_s, item_s=slope_s) for _ in range(workers)]
        async with batcher_over(
            *devices, devices=["cpu"] * workers, law=ServiceLaw(base_s, slope_s), max_batch_items=max_items,
            max_batch_tokens=25, max_queue_items=1000,
        ) as batcher:  # fmt: skip
            calls = [await start(batcher, *range(n), lane=lane) for lane, n in waiting_items]
            limits = batcher._limits()
            for lane in LANES:
                bound_s = batcher._admission.bound_s(lane, items, items, now(), limits)
                assert bound_s >= batcher._admission.predicted_s(lane, items, items, now(), limits) - 1e-9
            await asyncio.gather(*calls)

    run_virtually(main())
