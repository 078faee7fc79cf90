"""The batcher, on a virtual clock."""

import asyncio
from typing import Any

import pytest

from app.batching import Prepared
from app.batching.deadlines import RESOLUTION_S
from app.errors import (
    BackendFailed,
    DeadlineExceeded,
    InvalidInput,
    NotReady,
    OutOfMemory,
    QueueFull,
    ShuttingDown,
    WorkerDied,
)
from tests.simulated import Device, Tally, batcher_over, settle, start, submit, waiting
from tests.virtual_clock import now, run_virtually


def test_an_idle_worker_takes_what_waits_at_once() -> None:
    async def main() -> None:
        device = Device(base_s=0.1)
        async with batcher_over(device) as batcher:
            assert await submit(batcher, "a") == ["a"]
            assert now() == pytest.approx(0.1)

    run_virtually(main())


def test_requests_of_one_moment_share_a_batch() -> None:
    async def main() -> None:
        device = Device()
        async with batcher_over(device) as batcher:
            answers = await asyncio.gather(*[submit(batcher, i) for i in range(5)])
            assert answers == [[0], [1], [2], [3], [4]]
            assert device.sizes == [5]

    run_virtually(main())


def test_a_batch_forms_while_the_worker_is_busy_and_is_not_sealed_before_it_is_free() -> None:
    async def main() -> None:
        device = Device(base_s=0.1)
        async with batcher_over(device) as batcher:
            first = await start(batcher, 0)
            early = await start(batcher, 1)
            await asyncio.sleep(0.0999)
            late = await start(batcher, 2)
            await asyncio.gather(first, early, late)
            assert device.batches == [[0], [1, 2]]

    run_virtually(main())


def test_a_batch_keeps_to_both_limits_and_the_order_of_arrival() -> None:
    async def main() -> None:
        device = Device()
        async with batcher_over(device, max_batch_items=3, max_batch_tokens=10) as batcher:
            blocker = await start(batcher, "first")
            tasks = [await start(batcher, size, size=size) for size in (4, 4, 4, 1, 1, 1, 1)]
            await asyncio.gather(blocker, *tasks)
            assert device.batches == [["first"], [4, 4], [4, 1, 1], [1, 1]]

    run_virtually(main())


def test_an_item_above_the_budget_travels_alone() -> None:
    async def main() -> None:
        device = Device()
        async with batcher_over(device, max_batch_tokens=10) as batcher:
            await asyncio.gather(submit(batcher, "small"), submit(batcher, "huge", size=50), submit(batcher, "tiny"))
            assert device.batches == [["small"], ["huge"], ["tiny"]]

    run_virtually(main())


def test_a_long_list_is_split_and_its_rows_come_back_in_order() -> None:
    async def main() -> None:
        device = Device()
        async with batcher_over(device, max_batch_items=8) as batcher:
            answer = await batcher.submit(list(range(30)), [1] * 30)
            assert answer.rows == [("row", i) for i in range(30)]
            assert answer.batches == 4
            assert answer.run_s == pytest.approx(0.4)

    run_virtually(main())


def test_the_bill_shares_out_the_time_between_preparing_waiting_and_running() -> None:
    async def prepare(items: list[Any]) -> list[Prepared]:
        await asyncio.sleep(0.02)
        return [Prepared(item, 5) for item in items]

    async def main() -> None:
        async with batcher_over(Device(base_s=0.1), prepare=prepare) as batcher:
            blocker = asyncio.create_task(submit(batcher, 0))
            await asyncio.sleep(0.03)
            answer = await batcher.submit([1, 2], [1, 1])
            await blocker
            assert answer.prepare_s == pytest.approx(0.02)
            assert answer.queue_s == pytest.approx(0.07)
            assert answer.run_s == pytest.approx(0.1)
            assert (answer.batch.items, answer.batch.tokens, answer.tokens) == (2, 10, 10)

    run_virtually(main())


def test_three_workers_run_three_batches_side_by_side() -> None:
    async def main() -> None:
        devices = [Device(base_s=1.0) for _ in range(3)]
        async with batcher_over(*devices, max_batch_items=1) as batcher:
            await asyncio.gather(*[submit(batcher, i) for i in range(6)])
            assert now() == pytest.approx(2.0)
            assert [device.sizes for device in devices] == [[1, 1]] * 3

    run_virtually(main())


def test_a_batch_goes_to_the_device_that_will_be_done_first() -> None:
    async def main() -> None:
        first_of_a, second_of_a, only_of_b = (Device(base_s=1.0) for _ in range(3))
        devices = ["a", "a", "b"]
        async with batcher_over(first_of_a, second_of_a, only_of_b, devices=devices) as batcher:
            waiting = [await start(batcher, 1), await start(batcher, 2)]
            assert len(only_of_b.batches) == 1
            await asyncio.gather(*waiting)

    run_virtually(main())


def test_an_incomplete_batch_waits_for_max_wait_counted_from_its_oldest_item() -> None:
    async def main() -> None:
        device = Device(base_s=0.1)
        async with batcher_over(device, max_wait_s=0.05) as batcher:
            first = await start(batcher, 1)
            await asyncio.sleep(0.03)
            second = await start(batcher, 2)
            await asyncio.gather(first, second)
            assert device.batches == [[1, 2]]
            assert now() == pytest.approx(0.15)

    run_virtually(main())


def test_a_full_batch_does_not_wait() -> None:
    async def main() -> None:
        async with batcher_over(Device(base_s=0.1), max_wait_s=0.05, max_batch_items=2) as batcher:
            await asyncio.gather(submit(batcher, 1), submit(batcher, 2))
            assert now() == pytest.approx(0.1)

    run_virtually(main())


def test_a_full_queue_refuses_at_once_and_takes_again_when_there_is_room() -> None:
    async def main() -> None:
        tally = Tally()
        async with batcher_over(Device(base_s=1.0), facts=tally, max_queue_items=3) as batcher:
            running = await start(batcher, 0)
            waiting = await start(batcher, 1, 2)
            with pytest.raises(QueueFull) as refused:
                await submit(batcher, 3, 4)
            assert refused.value.retry_after_s >= 1
            assert now() == 0
            assert await submit(batcher, 5) == [5]
            await asyncio.gather(running, waiting)
            assert tally.ended == {"answered": 4, "shed": 2, "expired": 0, "abandoned": 0, "failed": 0}

    run_virtually(main())


def test_a_list_is_taken_whole_or_not_at_all() -> None:
    async def main() -> None:
        device = Device()
        async with batcher_over(device, max_queue_items=3) as batcher:
            with pytest.raises(QueueFull):
                await submit(batcher, 1, 2, 3, 4)
            assert await submit(batcher, 1, 2, 3) == [1, 2, 3]
            assert device.batches == [[1, 2, 3]]

    run_virtually(main())


def test_an_abandoned_item_never_reaches_the_worker_and_frees_its_place_at_once() -> None:
    async def main() -> None:
        device, tally = Device(), Tally()
        async with batcher_over(device, facts=tally, max_queue_items=2) as batcher:
            running = await start(batcher, "running")
            leaving = await start(batcher, "leaves", "too")
            leaving.cancel()
            await settle()
            assert waiting(batcher) == 0
            staying = await start(batcher, "stays")
            await asyncio.gather(running, staying)
            assert device.batches == [["running"], ["stays"]]
            assert tally.ended["abandoned"] == 2

    run_virtually(main())


def test_leaving_between_dispatch_and_answer_harms_nobody() -> None:
    async def main() -> None:
        device, tally = Device(), Tally()
        async with batcher_over(device, facts=tally) as batcher:
            leaving, staying = await start(batcher, "leaves"), await start(batcher, "stays")
            leaving.cancel()
            assert await staying == ["stays"]
            assert await submit(batcher, "later") == ["later"]
            assert tally.ended["abandoned"] == 1

    run_virtually(main())


def test_a_deadline_is_kept_even_while_a_long_batch_runs() -> None:
    async def main() -> None:
        device, tally = Device(base_s=10), Tally()
        async with batcher_over(device, facts=tally) as batcher:
            running = await start(batcher, "long")
            with pytest.raises(DeadlineExceeded):
                await submit(batcher, "late", deadline=0.5)
            assert 0.5 <= now() <= 0.5 + 1.01 * RESOLUTION_S
            await running
            assert device.batches == [["long"]]
            assert tally.ended["expired"] == 1

    run_virtually(main())


def test_one_bad_item_fails_alone_and_its_neighbours_are_answered() -> None:
    def fault(payloads: list[Any]) -> None:
        if "bad" in payloads:
            raise ValueError("no such thing")

    async def main() -> None:
        tally = Tally()
        async with batcher_over(Device(fault=fault), facts=tally, max_batch_items=32) as batcher:
            items = [*range(20), "bad", *range(20, 31)]
            outcomes = await asyncio.gather(*[submit(batcher, item) for item in items], return_exceptions=True)
            for item, outcome in zip(items, outcomes, strict=True):
                if item == "bad":
                    assert isinstance(outcome, BackendFailed)
                else:
                    assert outcome == [item]
            assert len(tally.failures) == 1
            assert await submit(batcher, "after") == ["after"]

    run_virtually(main())


def test_items_of_a_request_that_has_failed_are_not_run_again() -> None:
    def fault(payloads: list[Any]) -> None:
        if "bad" in payloads:
            raise ValueError

    async def main() -> None:
        device = Device(fault=fault)
        async with batcher_over(device) as batcher:
            with pytest.raises(BackendFailed):
                await submit(batcher, "bad", "b", "c", "d")
            assert device.batches == [["bad", "b", "c", "d"], ["bad", "b"], ["bad"]]

    run_virtually(main())


def test_every_caller_gets_an_exception_of_its_own() -> None:
    def fault(payloads: list[Any]) -> None:
        raise ValueError("broken")

    async def main() -> None:
        async with batcher_over(Device(fault=fault)) as batcher:
            errors = await asyncio.gather(*[submit(batcher, i) for i in range(4)], return_exceptions=True)
            assert all(isinstance(error, BackendFailed) for error in errors)
            assert len({id(error) for error in errors}) == 4

    run_virtually(main())


def test_out_of_memory_splits_the_batch_lowers_the_budget_and_answers_all() -> None:
    def fault(payloads: list[Any]) -> None:
        if len(payloads) > 3:
            raise OutOfMemory("too many")

    async def main() -> None:
        device, tally = Device(fault=fault), Tally()
        async with batcher_over(device, facts=tally, max_batch_items=16, max_batch_tokens=16) as batcher:
            answers = await asyncio.gather(*[submit(batcher, i) for i in range(16)])
            assert answers == [[i] for i in range(16)]
            assert batcher.max_batch_tokens <= 3
            assert tally.budgets == sorted(tally.budgets, reverse=True)
            await asyncio.gather(*[submit(batcher, i) for i in range(16)])
            assert all(size <= 3 for size in device.sizes[-5:])

    run_virtually(main())


def test_a_lone_item_without_memory_says_nothing_about_the_budget_and_the_floor_holds() -> None:
    def fault(payloads: list[Any]) -> None:
        if "huge" in payloads or len(payloads) > 2:
            raise OutOfMemory("too many")

    async def main() -> None:
        async with batcher_over(Device(fault=fault), min_batch_tokens=100, max_batch_tokens=800) as batcher:
            with pytest.raises(OutOfMemory):
                await submit(batcher, "huge")
            assert batcher.max_batch_tokens == 800
            await asyncio.gather(*[submit(batcher, i, size=50) for i in range(8)])
            assert batcher.max_batch_tokens == 100

    run_virtually(main())


def test_a_wrong_number_of_rows_is_an_error_and_never_another_callers_row() -> None:
    class Short(Device):
        async def __call__(self, payloads: list[Any]) -> list[Any]:
            return (await super().__call__(payloads))[1:]

    async def main() -> None:
        async with batcher_over(Short()) as batcher:
            outcomes = await asyncio.gather(*[submit(batcher, i) for i in range(3)], return_exceptions=True)
            assert all(isinstance(outcome, BackendFailed) for outcome in outcomes)

    run_virtually(main())


def test_a_dead_worker_fails_its_batch_and_the_others_go_on() -> None:
    def die(payloads: list[Any]) -> None:
        raise WorkerDied("gone")

    async def main() -> None:
        tally = Tally()
        living = Device()
        async with batcher_over(living, Device(fault=die), facts=tally, max_batch_items=1) as batcher:
            outcomes = await asyncio.gather(*[submit(batcher, i) for i in range(6)], return_exceptions=True)
            assert sum(isinstance(outcome, WorkerDied) for outcome in outcomes) == 1
            assert tally.lost == [1]
            assert batcher.alive

    run_virtually(main())


def test_rows_that_were_there_before_a_worker_died_are_delivered() -> None:
    def fault(payloads: list[Any]) -> None:
        if "evil" in payloads:
            raise WorkerDied("gone") if len(payloads) == 1 else ValueError

    async def main() -> None:
        async with batcher_over(Device(fault=fault)) as batcher:
            outcomes = await asyncio.gather(
                *[submit(batcher, item) for item in ("a", "b", "c", "evil")], return_exceptions=True
            )
            assert outcomes[:3] == [["a"], ["b"], ["c"]]
            assert isinstance(outcomes[3], WorkerDied)

    run_virtually(main())


def test_when_the_last_worker_dies_all_that_wait_are_told_and_nothing_new_is_taken() -> None:
    def die(payloads: list[Any]) -> None:
        raise WorkerDied("gone")

    async def main() -> None:
        async with batcher_over(Device(fault=die), max_batch_items=1) as batcher:
            outcomes = await asyncio.gather(*[submit(batcher, i) for i in range(3)], return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [WorkerDied, NotReady, NotReady]
            assert not batcher.alive
            assert isinstance(await batcher.stopped(), NotReady)
            with pytest.raises(NotReady):
                await submit(batcher, "new")

    run_virtually(main())


def test_draining_finishes_what_was_accepted_and_takes_nothing_new() -> None:
    async def main() -> None:
        async with batcher_over(Device(), max_batch_items=2) as batcher:
            tasks = [await start(batcher, i) for i in range(7)]
            drain = asyncio.create_task(batcher.drain())
            await settle()
            with pytest.raises(ShuttingDown):
                await submit(batcher, "new")
            await drain
            assert [task.result() for task in tasks] == [[i] for i in range(7)]

    run_virtually(main())


def test_draining_does_not_wait_for_a_batch_to_grow() -> None:
    async def main() -> None:
        async with batcher_over(Device(base_s=0.1), max_wait_s=0.0500) as batcher:
            waiting = await start(batcher, 1)
            await batcher.drain()
            assert waiting.result() == [1]
            assert now() == pytest.approx(0.1)

    run_virtually(main())


def test_leaving_the_batcher_ends_every_request() -> None:
    async def main() -> None:
        async with batcher_over(Device(base_s=10)) as batcher:
            tasks = [await start(batcher, i) for i in range(12)]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, ShuttingDown) for outcome in outcomes)
        assert now() < 10

    run_virtually(main())


def test_a_defect_in_the_loop_is_reported_and_leaves_nobody_waiting() -> None:
    class Broken(Tally):
        def batch_split(self, error: Exception) -> None:
            raise AssertionError("facts must not raise, but this one does")

    def fault(payloads: list[Any]) -> None:
        raise ValueError

    async def main() -> None:
        tally = Broken()
        async with batcher_over(Device(fault=fault), facts=tally) as batcher:
            outcomes = await asyncio.gather(*[submit(batcher, i) for i in range(2)], return_exceptions=True)
            assert all(isinstance(outcome, NotReady) for outcome in outcomes)
            assert len(tally.stopped) == 1
            assert not batcher.alive

    run_virtually(main())


def test_repeated_failures_show_and_a_success_clears_them() -> None:
    broken = True

    def fault(payloads: list[Any]) -> None:
        if broken:
            raise ValueError

    async def main() -> None:
        nonlocal broken
        async with batcher_over(Device(fault=fault)) as batcher:
            for _ in range(3):
                assert not batcher.failing
                with pytest.raises(BackendFailed):
                    await submit(batcher, "x")
            assert batcher.failing
            broken = False
            await submit(batcher, "x")
            assert not batcher.failing

    run_virtually(main())


# --- preparation ----------------------------------------------------------------------------------------------------


def test_items_are_prepared_many_in_a_call_while_the_worker_is_busy() -> None:
    calls: list[list[Any]] = []

    async def prepare(items: list[Any]) -> list[Prepared]:
        calls.append(list(items))
        await asyncio.sleep(0.01)
        return [Prepared(f"ready {item}", 1) for item in items]

    async def main() -> None:
        device = Device()
        async with batcher_over(device, prepare=prepare) as batcher:
            first = await start(batcher, 0)
            rest = [await start(batcher, i) for i in range(1, 5)]
            await asyncio.gather(first, *rest)
            assert calls == [[0], [1, 2, 3, 4]]
            assert device.batches == [["ready 0"], [f"ready {i}" for i in range(1, 5)]]

    run_virtually(main())


def test_what_cannot_be_prepared_refuses_its_own_request_alone() -> None:
    async def prepare(items: list[Any]) -> list[Prepared | InvalidInput]:
        return [InvalidInput("is odd") if item % 2 else Prepared(item, 1) for item in items]

    async def main() -> None:
        async with batcher_over(Device(), prepare=prepare) as batcher:
            good = await start(batcher, 0, 2)
            bad = (await asyncio.gather(submit(batcher, 4, 6, 7), return_exceptions=True))[0]
            assert await good == [0, 2]
            assert isinstance(bad, InvalidInput)
            assert bad.index == 2

    run_virtually(main())


def test_a_preparation_that_dies_stops_the_batcher() -> None:
    async def prepare(items: list[Any]) -> list[Prepared]:
        raise WorkerDied("gone")

    async def main() -> None:
        async with batcher_over(Device(), prepare=prepare) as batcher:
            with pytest.raises(NotReady):
                await submit(batcher, 1)
            assert not batcher.alive

    run_virtually(main())


class Preparing:
    """Prepares in two ways and remembers which was taken."""

    def __init__(self) -> None:
        self.elsewhere: list[list[Any]] = []
        self.here: list[list[Any]] = []

    async def prepare(self, items: list[Any]) -> list[Prepared]:
        self.elsewhere.append(items)
        await asyncio.sleep(0.02)
        return [Prepared(("prepared", item), 1) for item in items]

    def prepare_here(self, items: list[Any]) -> list[Prepared | InvalidInput]:
        self.here.append(items)
        return [InvalidInput("is refused") if item == "bad" else Prepared(("prepared", item), 1) for item in items]


def test_a_lone_small_item_is_prepared_at_once_and_whatever_else_elsewhere() -> None:
    async def main() -> None:
        way, device = Preparing(), Device(base_s=0.1)
        async with batcher_over(device, prepare=way.prepare, prepare_here=way.prepare_here) as batcher:
            answer = await batcher.submit(["small"], [10])
            assert answer.prepare_s == 0
            assert list(answer.rows) == [("row", ("prepared", "small"))]
            await batcher.submit(["large"], [100_000])
            await batcher.submit(["one", "two"], [1, 1])
            listed = asyncio.create_task(batcher.submit(["three", "four"], [1, 1]))
            await asyncio.sleep(0.01)
            await asyncio.gather(batcher.submit(["beside"], [1]), listed)
        assert way.here == [["small"]]
        assert way.elsewhere == [["large"], ["one", "two"], ["three", "four"], ["beside"]]

    run_virtually(main())


def test_a_lone_small_item_that_is_refused_refuses_its_request() -> None:
    async def main() -> None:
        way = Preparing()
        async with batcher_over(Device(), prepare=way.prepare, prepare_here=way.prepare_here) as batcher:
            with pytest.raises(InvalidInput, match="is refused"):
                await batcher.submit(["bad"], [1])
            assert waiting(batcher) == 0
            assert list((await batcher.submit(["good"], [1])).rows) == [("row", ("prepared", "good"))]

    run_virtually(main())
