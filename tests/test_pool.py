"""Which worker takes the next batch."""

from typing import Any

from app.batching.pool import Pool


async def worker(payloads: list[Any]) -> list[Any]:
    return payloads


def test_the_next_batch_goes_to_the_device_with_the_fewest_tokens_on_their_way() -> None:
    pool: Pool[Any] = Pool([worker] * 4, devices=["a", "a", "b", "b"])
    first = pool.take(100)
    second = pool.take(30)
    assert {first.device, second.device} == {"a", "b"}
    assert pool.take(10).device == second.device
    assert pool.take(10).device == first.device, "the other device has no worker left"
    assert not pool


def test_tokens_that_came_back_no_longer_count() -> None:
    pool: Pool[Any] = Pool([worker] * 4, devices=["a", "a", "b", "b"])
    first, second = pool.take(100), pool.take(30)
    pool.give_back(first, 100)
    assert pool.take(1).device == first.device
    pool.give_back(second, 30)
    assert pool.take(1).device == second.device


def test_among_equals_the_worker_that_was_freed_last_comes_first() -> None:
    pool: Pool[Any] = Pool([worker, worker, worker])
    seats = [pool.take(1) for _ in range(3)]
    for seat in (seats[1], seats[0], seats[2]):
        pool.give_back(seat, 1)
    assert pool.take(1) is seats[2]


def test_a_lost_worker_is_not_counted_and_frees_its_device() -> None:
    pool: Pool[Any] = Pool([worker] * 3, devices=["a", "b", "b"])
    lost = pool.take(50)
    pool.lose(lost, 50)
    assert pool.workers == 2
    assert pool.take(1).device == lost.device, "free again, and first by order"
