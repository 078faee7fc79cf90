"""Which worker takes the next batch, and when it may."""

from typing import Any

import pytest

from app.batching import ServiceLaw
from app.batching.pool import Pool


async def worker(payloads: list[Any]) -> list[Any]:
    return payloads


def pool_of(*devices: str, host_s: float = 0.0) -> Pool[Any]:
    """A worker for each name, on devices that take 1 s and 10 ms a token."""
    return Pool([worker for _ in devices], devices, ServiceLaw(1.0, 0.01), lambda: host_s)


def test_the_next_batch_goes_to_the_device_with_the_fewest_tokens_on_their_way() -> None:
    pool = pool_of("a", "a", "b", "b")
    first, second = pool.take(100, 0), pool.take(30, 0)
    assert first.device is not second.device
    assert pool.take(10, 0).device is second.device
    assert pool.take(10, 0).device is first.device, "the other device has no worker left"
    assert pool.ready_in_s(0) is None


def test_tokens_that_came_back_no_longer_count() -> None:
    pool = pool_of("a", "a", "b", "b")
    first, second = pool.take(100, 0), pool.take(30, 0)
    pool.give_back(first, 1)
    assert pool.take(1, 1).device is first.device
    pool.give_back(second, 2)
    assert pool.take(1, 2).device is second.device


def test_among_equals_the_worker_that_was_freed_last_comes_first() -> None:
    async def other(payloads: list[Any]) -> list[Any]:
        return payloads

    pool: Pool[Any] = Pool([worker, other], ["a", "a"], ServiceLaw(), lambda: 0.0)
    trips = [pool.take(1, 0) for _ in range(2)]
    for trip in trips:
        pool.give_back(trip, 1)
    assert pool.take(1, 1).run is trips[1].run


def test_a_lost_worker_is_not_counted_and_frees_its_device() -> None:
    pool = pool_of("a", "b", "b")
    lost = pool.take(50, 0)
    pool.lose(lost, 1)
    assert pool.workers == 2
    assert pool.ready_in_s(1) == 0


def test_a_batch_took_the_time_since_it_left() -> None:
    pool = pool_of("a", "b")
    first, second = pool.take(1, 0), pool.take(1, 3)
    assert pool.give_back(first, 4) == 4
    assert pool.give_back(second, 5) == 2
    assert pool.parallel == 2
    assert pool.crowd == 1


def test_batches_that_share_a_device_took_their_part_of_the_time() -> None:
    pool = pool_of("a", "a")
    first = pool.take(1, 0)
    assert pool.slowdown == 2
    second = pool.take(1, 2)
    assert pool.give_back(first, 6) == pytest.approx(2 + 4 / 2)
    assert pool.give_back(second, 7) == pytest.approx(4 / 2 + 1)
    assert pool.parallel == 1
    assert pool.crowd == 2


def test_it_is_known_when_the_first_worker_will_be_free() -> None:
    pool = pool_of("a", "b")
    pool.take(100, 0)  # two seconds
    assert pool.free_in_s(0.5) == 0
    pool.take(300, 0)
    assert pool.free_in_s(0.5) == pytest.approx(1.5)
    assert pool.free_in_s(9) == 0, "it should have been back long ago"


def test_where_a_device_is_shared_it_takes_as_much_longer() -> None:
    pool = pool_of("a", "a")
    pool.take(100, 0)  # two seconds alone
    pool.take(300, 1)  # from here on each has half
    assert pool.free_in_s(1) == pytest.approx(2)
    assert pool.free_in_s(2) == pytest.approx(1)


def test_a_device_that_works_by_itself_gets_its_next_batch_just_before_it_is_free() -> None:
    pool = pool_of("a", "a", host_s=0.25)
    first = pool.take(100, 0)  # begins at 0.25, ends at 2.25
    assert pool.ready_in_s(1.0) == pytest.approx(1.0)
    assert pool.ready_in_s(2.5) == 0
    second = pool.take(100, 2.0)
    assert pool.ready_in_s(2.0) is None, "no worker is left"
    assert pool.give_back(first, 2.3) == pytest.approx(2.05), "without the host's time"
    assert pool.ready_in_s(2.3) == pytest.approx(1.75), "the second began at 2.3, not at 2.25"
    assert pool.give_back(second, 4.3) == pytest.approx(2.0), "without the wait for the first"
    assert pool.ready_in_s(4.3) == 0
    assert pool.parallel == 1
