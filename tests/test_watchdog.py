"""The watchdog: a model that is silent for too long counts as dead, and nobody waits for it."""

import asyncio
from typing import Any

import pytest

from app.batching import Prepared
from app.errors import BackendFailed, NotReady
from tests.simulated import Device, Tally, batcher_over, start, submit
from tests.virtual_clock import now, run_virtually


class Hanging(Device):
    """Answers until a batch has "hang" in it, and then never again."""

    async def __call__(self, payloads: list[Any]) -> list[Any]:
        rows = await super().__call__(payloads)
        if "hang" in payloads:
            await asyncio.sleep(10**9)
        return rows


def test_a_silent_model_ends_all_who_wait_and_refuses_who_comes() -> None:
    async def main() -> None:
        tally = Tally()
        async with batcher_over(Hanging(), Hanging(), facts=tally, max_batch_items=1, watchdog_s=5) as batcher:
            assert await submit(batcher, "well") == ["well"]
            began = now()
            hanging = await start(batcher, "hang")
            other = await start(batcher, "on the other worker")
            assert await other == ["on the other worker"]
            with pytest.raises(BackendFailed, match=r"not answered a batch of 1 inputs within 5 s"):
                await hanging
            assert now() == pytest.approx(began + 5)
            assert not batcher.alive
            with pytest.raises(NotReady, match="must be restarted"):
                await submit(batcher, "later")
            assert tally.lost == [1]
            assert "5 s" in str(await batcher.stopped())

    run_virtually(main())


def test_those_who_wait_behind_a_silent_model_are_told_too() -> None:
    async def main() -> None:
        async with batcher_over(Hanging(), max_batch_items=1, watchdog_s=5) as batcher:
            calls = [await start(batcher, item) for item in ("hang", "behind", "further behind")]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(outcomes[0], BackendFailed)
            assert [type(outcome) for outcome in outcomes[1:]] == [NotReady, NotReady]
            assert now() == pytest.approx(5)

    run_virtually(main())


def test_a_slow_model_is_not_a_silent_one() -> None:
    async def main() -> None:
        async with batcher_over(Device(base_s=4.9), max_batch_items=1, watchdog_s=5) as batcher:
            assert await asyncio.gather(*[submit(batcher, i) for i in range(5)]) == [[i] for i in range(5)]

    run_virtually(main())


def test_a_batch_that_is_split_has_the_time_for_each_part() -> None:
    def fault(payloads: list[Any]) -> None:
        if len(payloads) > 1:
            raise ValueError("one at a time")

    async def main() -> None:
        async with batcher_over(Device(base_s=4, fault=fault), watchdog_s=5) as batcher:
            assert await submit(batcher, "a", "b", "c") == ["a", "b", "c"]

    run_virtually(main())


def test_a_silent_preparation_ends_all_who_wait() -> None:
    async def prepare(items: list[Any]) -> list[Prepared]:
        await asyncio.sleep(10**9)
        return []

    async def main() -> None:
        async with batcher_over(Device(), prepare=prepare, watchdog_s=5) as batcher:
            with pytest.raises(NotReady, match="longer than 5 s"):
                await submit(batcher, "a")
            assert now() == pytest.approx(5)

    run_virtually(main())
