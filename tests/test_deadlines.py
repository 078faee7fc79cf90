"""Deadlines at dispatch: who goes first, who waits, who is dropped before the device."""

import asyncio
from typing import Any

import pytest

from app.batching import Batcher, ServiceLaw
from app.errors import DeadlineExceeded, WouldBeLate
from tests.simulated import Device, Tally, batcher_over, start, submit
from tests.virtual_clock import now, run_virtually

PAUSE_S = 0.4


class PausedOnce(Device):
    """Takes 0.1 s and 0.01 s an item, as the law says, but its first batch is held up by a pause that nobody foresaw:
    who was accepted in the meantime may turn out to be late."""

    def __init__(self) -> None:
        super().__init__(0.1, 0.01)

    async def __call__(self, payloads: list[Any]) -> list[Any]:
        rows = await super().__call__(payloads)
        if len(self.batches) == 1:
            await asyncio.sleep(PAUSE_S)
        return rows


FREE_AT_S = 0.11 + PAUSE_S
"""When the first batch, of one item, is back."""


def over(device: Device, **options: Any) -> Batcher[Any, Any]:
    return batcher_over(device, law=ServiceLaw(0.1, 0.01), **options)


def test_what_would_be_answered_too_late_never_reaches_the_device() -> None:
    async def main() -> None:
        device, tally = PausedOnce(), Tally()
        async with over(device, facts=tally) as batcher:
            running = await start(batcher, "first")
            other = await start(batcher, "in time")
            with pytest.raises(DeadlineExceeded):
                await submit(batcher, "late", deadline=FREE_AT_S + 0.05)
            assert now() == pytest.approx(FREE_AT_S), "told as soon as it is certain"
            await asyncio.gather(running, other)
            assert device.batches == [["first"], ["in time"]]
            assert tally.ended["expired"] == 1

    run_virtually(main())


def test_the_urgent_one_goes_ahead_where_the_others_can_wait() -> None:
    async def main() -> None:
        device, tally = PausedOnce(), Tally()
        async with over(device, max_batch_items=50, facts=tally) as batcher:
            running = await start(batcher, "first")
            patient = [await start(batcher, f"patient {i}", deadline=9) for i in range(30)]
            urgent = await start(batcher, "urgent", deadline=FREE_AT_S + 0.2)  # with all others it would take 0.41
            assert await urgent == ["urgent"]
            assert now() <= FREE_AT_S + 0.2
            await asyncio.gather(running, *patient)
            assert "urgent" in device.batches[1]
            assert device.sizes[1] > 5, "others go along, as far as they do not make it late"
            assert device.sizes == [1, device.sizes[1], 31 - device.sizes[1]]
            assert [batch.closed for batch in tally.departures] == ["drained", "deadline", "drained"]
            assert tally.causes.count("lane") == 31 - device.sizes[1], "those who were put back"

    run_virtually(main())


def test_where_nobody_can_wait_the_one_in_the_way_of_a_full_batch_is_dropped() -> None:
    async def main() -> None:
        device = PausedOnce()
        async with over(device, max_batch_items=50) as batcher:
            running = await start(batcher, "first")
            others = [await start(batcher, f"other {i}", deadline=FREE_AT_S + 0.46) for i in range(30)]
            urgent = await start(batcher, "urgent", deadline=FREE_AT_S + 0.2)
            with pytest.raises(DeadlineExceeded):
                await urgent
            assert len(await asyncio.gather(running, *others)) == 31
            assert device.sizes == [1, 30]

    run_virtually(main())


def test_a_list_that_cannot_be_finished_in_time_is_not_begun() -> None:
    async def main() -> None:
        device = PausedOnce()
        async with over(device, max_batch_items=4, max_batch_tokens=4) as batcher:
            running = await start(batcher, "first")
            other = await start(batcher, "other", lane="bulk")
            with pytest.raises(DeadlineExceeded):
                await submit(batcher, *range(20), lane="bulk", deadline=0.11 + 6 * 0.14)
            await asyncio.gather(running, other)
            assert device.batches == [["first"], ["other"]]

    run_virtually(main())


def test_a_list_that_cannot_be_finished_in_time_as_things_stand_is_refused_at_once() -> None:
    async def main() -> None:
        device = Device(0.1, 0.01)
        async with over(device, max_batch_items=4, max_batch_tokens=4) as batcher:
            running = await start(batcher, "first")
            with pytest.raises(WouldBeLate):
                await submit(batcher, *range(20), lane="bulk", deadline=0.5)
            assert now() == 0
            assert await submit(batcher, *range(20), lane="bulk", deadline=1.0) == list(range(20))
            await running

    run_virtually(main())


def test_the_last_one_is_tried_even_if_it_seems_too_late_so_that_a_wrong_law_is_mended() -> None:
    async def main() -> None:
        wrong = ServiceLaw(100.0, 1.0)
        async with batcher_over(Device(base_s=0.001), law=wrong) as batcher:
            for _ in range(3):
                assert await submit(batcher, "one", deadline=now() + 1) == ["one"]
            assert wrong.seconds(1) == pytest.approx(0.001, rel=0.01)
            crowd = await asyncio.gather(*[submit(batcher, i, deadline=now() + 0.01) for i in range(8)])
            assert len(crowd) == 8

    run_virtually(main())


def test_requests_that_are_dropped_make_room_in_the_same_batch() -> None:
    async def main() -> None:
        device = PausedOnce()
        async with over(device, max_batch_items=4) as batcher:
            running = await start(batcher, "first")
            late = [await start(batcher, "late", deadline=FREE_AT_S + 0.05) for _ in range(3)]
            good = [await start(batcher, f"good {i}") for i in range(4)]
            outcomes = await asyncio.gather(*late, return_exceptions=True)
            assert all(isinstance(outcome, DeadlineExceeded) for outcome in outcomes)
            await asyncio.gather(running, *good)
            assert device.batches == [["first"], [f"good {i}" for i in range(4)]]

    run_virtually(main())


def test_a_wrong_law_is_mended_by_lists_and_by_texts_that_share_a_row_too() -> None:
    async def main() -> None:
        for items in (["x", "x"], list(range(20))):
            wrong = ServiceLaw(100.0, 1.0)
            async with batcher_over(Device(base_s=0.001), law=wrong, alike=lambda item: item) as batcher:
                for _ in range(4):
                    call = submit(batcher, *items, lane="bulk", deadline=now() + 1)
                    await asyncio.gather(call, return_exceptions=True)
                assert await submit(batcher, *items, lane="bulk", deadline=now() + 1) == items

    run_virtually(main())
