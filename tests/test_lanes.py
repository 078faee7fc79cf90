"""The two lanes: who goes first, what bulk is guaranteed, how requests of one lane take turns."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching import ServiceLaw
from tests.simulated import Device, batcher_over, start, submit
from tests.virtual_clock import now, run_virtually


def test_interactive_items_fill_the_batch_first_and_bulk_takes_what_is_left() -> None:
    async def main() -> None:
        device = Device()
        async with batcher_over(device, max_batch_items=4, bulk_share=0) as batcher:
            running = await start(batcher, "first")
            bulk = await start(batcher, "b1", "b2", "b3", "b4", lane="bulk")
            single = [await start(batcher, f"i{i}") for i in range(3)]
            await asyncio.gather(running, bulk, *single)
            assert device.batches == [["first"], ["i0", "i1", "i2", "b1"], ["b2", "b3", "b4"]]

    run_virtually(main())


def test_without_interactive_work_bulk_has_the_whole_batch() -> None:
    async def main() -> None:
        device = Device()
        async with batcher_over(device, max_batch_items=4) as batcher:
            await submit(batcher, *range(8), lane="bulk")
            assert device.sizes == [4, 4]

    run_virtually(main())


async def saturated(
    device: Device, seconds: float, interactive_size: int, bulk_size: int, **options: Any
) -> tuple[int, int]:
    """Keep both lanes full for so long; returns the tokens that went, interactive and bulk."""
    async with batcher_over(device, max_queue_items=20_000, max_queue_tokens=1_000_000, **options) as batcher:
        people = [
            asyncio.create_task(submit(batcher, *[("i", interactive_size)] * 2000, size=interactive_size))
            for _ in range(4)
        ]
        pipelines = [
            asyncio.create_task(submit(batcher, *[("b", bulk_size)] * 2000, size=bulk_size, lane="bulk"))
            for _ in range(4)
        ]
        await asyncio.sleep(seconds)
        for task in (*people, *pipelines):
            task.cancel()
        await asyncio.gather(*people, *pipelines, return_exceptions=True)
    went = [item for batch in device.batches for item in batch]
    return sum(size for lane, size in went if lane == "i"), sum(size for lane, size in went if lane == "b")


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(1, 90), st.sampled_from([0.1, 0.25, 0.5]))
def test_however_much_is_interactive_bulk_gets_its_share_of_the_tokens_and_no_more(
    interactive_size: int, bulk_size: int, share: float
) -> None:
    people, pipelines = run_virtually(
        saturated(
            Device(base_s=0.01), 0.5, interactive_size, bulk_size,
            bulk_share=share, max_batch_items=1000, max_batch_tokens=100,
        )
    )  # fmt: skip
    total = people + pipelines
    assert pipelines >= share * total - bulk_size - share * 100
    left_over = interactive_size / 100  # of a batch, where the next interactive item does not fit
    assert pipelines <= (share + left_over) * total + bulk_size + share * 100


def test_a_share_of_nothing_lets_bulk_wait_and_a_share_of_all_lets_it_go_first() -> None:
    people, pipelines = run_virtually(saturated(Device(base_s=0.01), 0.1, 1, 1, bulk_share=0.0))
    assert pipelines == 0
    people, pipelines = run_virtually(saturated(Device(base_s=0.01), 0.1, 1, 1, bulk_share=1.0))
    assert people <= 16  # the first batch, before anything was owed


def test_a_long_list_does_not_stand_before_later_requests_of_its_lane() -> None:
    async def main() -> None:
        device = Device()
        async with batcher_over(device, max_batch_items=4, max_batch_tokens=10_000) as batcher:
            running = await start(batcher, "first")
            long = await start(batcher, *range(20), size=100, lane="bulk")
            short = [await start(batcher, f"s{i}", size=100, lane="bulk") for i in range(3)]
            await asyncio.gather(running, long, *short)
            assert device.batches[1] == [0, "s0", "s1", "s2"]
            assert [item for batch in device.batches[2:] for item in batch] == list(range(1, 20))

    run_virtually(main())


def test_turns_are_worth_tokens_not_items() -> None:
    async def main() -> None:
        device = Device()
        async with batcher_over(device, max_batch_items=50, max_batch_tokens=10_000, max_queue_items=3000) as batcher:
            running = await start(batcher, ("first", 1))
            long = await start(batcher, *[("long", 320)] * 200, size=320, lane="bulk")
            short = await start(batcher, *[("short", 10)] * 1000, size=10, lane="bulk")
            await asyncio.sleep(1)
            tokens = {"long": 0, "short": 0, "first": 0}
            for batch in device.batches:
                for kind, size in batch:
                    tokens[kind] += size
            assert tokens["short"] == pytest.approx(tokens["long"], rel=0.15)
            for task in (running, long, short):
                task.cancel()

    run_virtually(main())


def test_a_list_that_was_alone_owes_nothing_to_those_who_come_later() -> None:
    async def main() -> None:
        device = Device()
        async with batcher_over(device, max_batch_items=4, max_batch_tokens=10_000, max_queue_items=1000) as batcher:
            early = await start(batcher, *["early"] * 100, size=100, lane="bulk")
            await asyncio.sleep(1.05)
            before = len(device.batches)
            late = await start(batcher, *["late"] * 100, size=100, lane="bulk")
            await asyncio.sleep(1)
            went = [item for batch in device.batches[before:] for item in batch]
            assert went.count("early") == pytest.approx(went.count("late"), abs=5)
            for task in (early, late):
                task.cancel()

    run_virtually(main())


def test_batches_are_short_while_interactive_requests_come_and_full_again_after_them() -> None:
    async def main() -> None:
        device = Device(base_s=0.010, item_s=0.00875)
        law = ServiceLaw(0.010, 0.00875)  # batches of ten items reach 90% of the best throughput
        async with batcher_over(
            device, law=law, knee=0.9, max_batch_items=100, max_batch_tokens=40, presence_s=1.0, max_queue_items=1000
        ) as batcher:
            bulk = await start(batcher, *range(500), lane="bulk")
            await asyncio.sleep(1.6)
            await submit(batcher, "a query")
            await bulk
            sizes = device.sizes
            assert sizes[:5] == [40] * 5
            assert sizes[5:14] == [10] * 9
            assert sizes[15:-1] == [40] * len(sizes[15:-1])
            assert "a query" in device.batches[5]

    run_virtually(main())


def test_a_target_time_is_kept_by_the_law_that_was_learnt() -> None:
    async def main() -> None:
        device = Device(base_s=0.01, item_s=0.001)
        law = ServiceLaw(0.001, 0.0001)  # ten times too fast: it has to be learnt
        async with batcher_over(
            device,
            law=law,
            max_batch_items=1000,
            max_batch_tokens=400,
            target_batch_s=0.03,
            max_queue_items=50_000,
            max_queue_tokens=50_000,
        ) as batcher:
            bulk = asyncio.create_task(submit(batcher, *range(20_000), lane="bulk"))
            for _ in range(30):
                await asyncio.sleep(0.1)
                await submit(batcher, "a query")
            bulk.cancel()
            assert max(device.sizes[-20:]) <= 20
            assert min(device.sizes[-20:]) >= 18

    run_virtually(main())


def test_with_a_spare_worker_a_query_starts_beside_bulk_and_no_further_bulk_does() -> None:
    async def main() -> None:
        devices = [Device(base_s=1.0) for _ in range(3)]
        async with batcher_over(*devices, devices=["cpu"] * 3, side_by_side=2, max_batch_items=4) as batcher:
            bulk = await start(batcher, *range(16), lane="bulk")
            assert sum(len(device.batches) for device in devices) == 2, "the third worker is not for bulk"
            await asyncio.sleep(0.5)
            query = await start(batcher, "a query")
            other = await start(batcher, "another query")
            assert await query == ["a query"]
            assert now() == pytest.approx(1.5), "it did not wait for the batches that were running"
            assert await other == ["another query"]
            assert now() == pytest.approx(2.0), (
                "the spare worker was taken; this one went first when a bulk batch ended"
            )
            await bulk
            batches = [batch for device in devices for batch in device.batches]
            assert ["a query"] in batches, "bulk went with neither"
            assert ["another query"] in batches

    run_virtually(main())


def test_where_workers_share_a_device_bulk_uses_all_of_them_when_nobody_else_is_there() -> None:
    async def main() -> None:
        first, second = Device(base_s=1.0), Device(base_s=1.0)
        async with batcher_over(first, second, devices=["cpu", "cpu"], max_batch_items=4) as batcher:
            await submit(batcher, *range(16), lane="bulk")
            assert now() == pytest.approx(2)

    run_virtually(main())


def test_bulk_keeps_its_share_where_interactive_requests_never_leave_a_shared_device_idle() -> None:
    async def main() -> None:
        devices = [Device(base_s=0.010), Device(base_s=0.013)]
        async with batcher_over(
            *devices, devices=["cpu", "cpu"], max_batch_items=10, max_queue_items=20_000, bulk_share=0.2
        ) as batcher:
            people = [asyncio.create_task(submit(batcher, *["i"] * 2000)) for _ in range(4)]
            bulk = asyncio.create_task(submit(batcher, *["b"] * 2000, lane="bulk"))
            await asyncio.sleep(2)
            went = [item for device in devices for batch in device.batches for item in batch]
            assert went.count("b") == pytest.approx(0.2 * len(went), rel=0.05)
            for task in (*people, bulk):
                task.cancel()

    run_virtually(main())


def test_a_request_of_many_items_keeps_their_order() -> None:
    async def main() -> None:
        device = Device(base_s=0.01)
        async with batcher_over(device, max_batch_items=7, max_queue_items=1000) as batcher:
            answers = await asyncio.gather(
                *[submit(batcher, *range(k, k + 40), size=1 + k % 60, lane="bulk") for k in range(0, 400, 40)]
            )
            assert [item for answer in answers for item in answer] == list(range(400))
            for k in range(0, 400, 40):
                own = [item for batch in device.batches for item in batch if k <= item < k + 40]
                assert own == list(range(k, k + 40))
            assert now() > 0

    run_virtually(main())
