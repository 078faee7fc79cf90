"""Items that are alike and wait at the same time share one row."""

import asyncio
from typing import Any

import pytest

from app.batching import Batcher, Prepared
from app.errors import BackendFailed, DeadlineExceeded, InvalidInput
from tests.simulated import Device, Tally, batcher_over, start, submit, waiting
from tests.virtual_clock import now, run_virtually


def sharing(device: Device, **options: Any) -> Batcher[Any, Any]:
    return batcher_over(device, alike=lambda item: item, **options)


def test_alike_items_of_many_requests_are_computed_once_and_all_are_answered() -> None:
    async def main() -> None:
        device, tally = Device(), Tally()
        async with sharing(device, facts=tally) as batcher:
            running = await start(batcher, "first")
            calls = [await start(batcher, *items) for items in (["x"], ["x", "y"], ["y", "x", "x"])]
            assert await asyncio.gather(*calls) == [["x"], ["x", "y"], ["y", "x", "x"]]
            await running
            assert device.batches == [["first"], ["x", "y"]]
            assert tally.shared == 4
            assert tally.ended["answered"] == 7
            assert waiting(batcher) == 0

    run_virtually(main())


def test_one_that_comes_while_the_row_is_computed_takes_it_and_needs_no_place() -> None:
    async def main() -> None:
        device = Device(base_s=0.1)
        async with sharing(device) as batcher:
            running = await start(batcher, "x")
            await asyncio.sleep(0.06)
            answer = await batcher.submit(["x"], [1])
            assert now() == pytest.approx(0.1)
            assert answer.run_s == pytest.approx(0.04)
            assert answer.queue_s == pytest.approx(0)
            assert await running == ["x"]
            assert device.batches == [["x"]]
            assert await submit(batcher, "x") == ["x"]
            assert device.batches == [["x"], ["x"]], "a row that has been delivered is not kept"

    run_virtually(main())


def test_the_one_who_leaves_takes_nothing_from_those_who_share_with_it() -> None:
    async def main() -> None:
        device = Device()
        async with sharing(device) as batcher:
            running = await start(batcher, "first")
            leaving, staying = await start(batcher, "x", "own"), await start(batcher, "x")
            leaving.cancel()
            assert await staying == ["x"]
            assert device.batches == [["first"], ["x"]]
            leaving, staying = await start(batcher, "y"), await start(batcher, "y")
            leaving.cancel()  # its row is on its way already
            assert await staying == ["y"]
            await running

    run_virtually(main())


def test_each_keeps_its_own_deadline() -> None:
    async def main() -> None:
        device = Device(base_s=1.0)
        async with sharing(device) as batcher:
            running = await start(batcher, "first")
            patient, hasty = await start(batcher, "x"), await start(batcher, "x", deadline=1.5)
            with pytest.raises(DeadlineExceeded):
                await hasty
            assert await patient == ["x"]
            await running

    run_virtually(main())


def test_an_interactive_request_does_not_wait_at_the_bulk_requests_place() -> None:
    async def main() -> None:
        device = Device()
        async with sharing(device, max_batch_items=2, bulk_share=0) as batcher:
            running = await start(batcher, "first")
            bulk = await start(batcher, "a", "b", "c", "d", "x", lane="bulk")
            assert await submit(batcher, "x") == ["x"]
            assert await bulk == ["a", "b", "c", "d", "x"]
            await running
            assert device.batches == [["first"], ["x", "a"], ["b", "c"], ["d"]]

    run_virtually(main())


def test_a_failure_reaches_all_who_share_each_with_an_exception_of_its_own() -> None:
    def fault(payloads: list[Any]) -> None:
        if "bad" in payloads:
            raise ValueError("no")

    async def main() -> None:
        async with sharing(Device(fault=fault)) as batcher:
            running = await start(batcher, "first")
            calls = [await start(batcher, "bad") for _ in range(3)]
            good = await start(batcher, "good")
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(error, BackendFailed) for error in errors)
            assert len({id(error) for error in errors}) == 3
            assert await good == ["good"]
            await running

    run_virtually(main())


def test_nobody_joins_a_row_that_has_been_delivered_while_its_batch_goes_on() -> None:
    """A batch that is split delivers its first half long before it comes back."""

    def fault(payloads: list[Any]) -> None:
        if len(payloads) > 1:
            raise ValueError("one at a time")

    async def main() -> None:
        device = Device(base_s=0.1, fault=fault)
        async with sharing(device) as batcher:
            running = await start(batcher, "first")
            one, two = await start(batcher, "x"), await start(batcher, "y")
            assert await one == ["x"]
            again = asyncio.create_task(submit(batcher, "x"))
            assert await two == ["y"]
            assert await again == ["x"]
            await running

    run_virtually(main())


def test_what_one_request_has_prepared_another_need_not() -> None:
    prepared: list[Any] = []

    async def prepare(items: list[Any]) -> list[Prepared | InvalidInput]:
        prepared.extend(items)
        await asyncio.sleep(0.01)
        return [InvalidInput("is odd") if item == "odd" else Prepared(item, 1) for item in items]

    async def main() -> None:
        device = Device()
        async with sharing(device, prepare=prepare) as batcher:
            running = await start(batcher, "first")
            await asyncio.sleep(0.02)
            early = await start(batcher, "x")
            await asyncio.sleep(0.02)
            late = await start(batcher, "x", "y")
            odd = [await start(batcher, "odd"), await start(batcher, "z", "odd")]
            assert [await early, await late] == [["x"], ["x", "y"]]
            assert prepared.count("x") == 1
            errors = await asyncio.gather(*odd, return_exceptions=True)
            assert [type(error) for error in errors] == [InvalidInput] * 2
            assert [error.index for error in errors if isinstance(error, InvalidInput)] == [0, 1]
            assert waiting(batcher) == 0
            await running

    run_virtually(main())


def test_items_without_a_key_share_with_nobody() -> None:
    async def main() -> None:
        device = Device()
        async with batcher_over(device) as batcher:
            await asyncio.gather(*[submit(batcher, "x") for _ in range(3)])
            assert device.batches == [["x", "x", "x"]]

    run_virtually(main())
