"""The worker threads."""

import asyncio
import threading
import time

import pytest

from app.errors import WorkerDied
from app.worker import Worker


def test_calls_run_on_the_workers_own_thread_one_after_another() -> None:
    async def main() -> None:
        async with Worker("w") as worker:
            names = await asyncio.gather(*[worker.call(lambda: threading.current_thread().name) for _ in range(3)])
            assert names == ["w", "w", "w"]

    asyncio.run(main())


def test_an_ordinary_exception_belongs_to_its_call_alone() -> None:
    def fail() -> None:
        raise ValueError("mine")

    async def main() -> None:
        async with Worker("w") as worker:
            with pytest.raises(ValueError, match="mine"):
                await worker.call(fail)
            assert await worker.call(lambda: 1) == 1

    asyncio.run(main())


def test_even_a_stop_iteration_arrives() -> None:
    def stop() -> None:
        next(iter(()))

    async def main() -> None:
        async with Worker("w") as worker:
            with pytest.raises(RuntimeError, match="StopIteration"):
                await worker.call(stop)

    asyncio.run(main())


def test_a_call_that_ends_the_thread_fails_with_all_that_are_queued_behind_it() -> None:
    def die() -> None:
        time.sleep(0.05)
        raise SystemExit("the end")

    async def main() -> None:
        async with Worker("w") as worker:
            async with asyncio.timeout(5):
                outcomes = await asyncio.gather(
                    worker.call(die), worker.call(lambda: 1), worker.call(lambda: 2), return_exceptions=True
                )
            assert all(isinstance(outcome, WorkerDied) for outcome in outcomes)
            assert not worker.alive
            with pytest.raises(WorkerDied, match="the end"):
                await worker.call(lambda: 3)

    asyncio.run(main())


def test_a_caller_that_leaves_does_not_disturb_the_thread() -> None:
    async def main() -> None:
        async with Worker("w") as worker:
            leaving = worker.call(time.sleep, 0.05)
            await asyncio.sleep(0.01)
            leaving.cancel()
            assert await worker.call(lambda: "still here") == "still here"

    asyncio.run(main())


@pytest.mark.parametrize("k", [1, 3])
def test_leaving_joins_every_thread(k: int) -> None:
    async def main() -> None:
        before = threading.active_count()
        workers = [Worker(f"w{i}") for i in range(k)]
        for worker in workers:
            await worker.__aenter__()
        assert threading.active_count() == before + k
        for worker in workers:
            await worker.__aexit__(None, None, None)
        alive = {thread.name for thread in threading.enumerate()}
        assert not alive & {worker.name for worker in workers}

    asyncio.run(main())


@pytest.mark.parametrize("k", [1, 3])
def test_k_workers_work_side_by_side(k: int) -> None:
    async def main() -> None:
        together = threading.Barrier(k, timeout=5)
        workers = [Worker(f"w{i}") for i in range(k)]
        for worker in workers:
            await worker.__aenter__()
        await asyncio.gather(*[worker.call(together.wait) for worker in workers])
        for worker in workers:
            await worker.__aexit__(None, None, None)

    asyncio.run(main())
