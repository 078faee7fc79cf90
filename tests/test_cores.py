"""Sharing cores among forwards, and counting the workers that pay."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from app.vectorizers.cores import Cores, Measured, compare_workers, workers_that_pay


def test_one_alone_takes_all_cores_and_one_beside_others_its_share() -> None:
    cores = Cores(4)
    inside, leave = threading.Barrier(2), threading.Barrier(2)

    def first() -> int:
        with cores:
            threads = torch.get_num_threads()
            inside.wait()
            leave.wait()
        return threads

    def second() -> int:
        inside.wait()
        with cores:
            threads = torch.get_num_threads()
        leave.wait()
        return threads

    with ThreadPoolExecutor(2) as pool:
        assert [one.result() for one in (pool.submit(first), pool.submit(second))] == [4, 2]
        with cores:
            assert torch.get_num_threads() == 4


def test_a_forward_that_fails_gives_its_cores_back() -> None:
    cores = Cores(2)
    with ThreadPoolExecutor(1) as pool:

        def fail() -> None:
            with cores:
                raise ValueError("of the forward")

        with pytest.raises(ValueError, match="of the forward"):
            pool.submit(fail).result()

        def count() -> int:
            with cores:
                return torch.get_num_threads()

        assert pool.submit(count).result() == 2


def test_more_workers_are_taken_only_where_they_carry_clearly_more() -> None:
    assert workers_that_pay([Measured(1, 100.0), Measured(4, 150.0)]) == 4
    assert workers_that_pay([Measured(1, 100.0), Measured(4, 103.0)]) == 1
    assert workers_that_pay([Measured(1, 100.0), Measured(4, 80.0)]) == 1
    assert workers_that_pay([Measured(1, 100.0)]) == 1


def test_one_worker_is_measured_on_the_calling_thread_and_more_on_threads_of_their_own() -> None:
    seen: set[str] = set()
    caller = threading.current_thread().name

    def run() -> None:
        seen.add(threading.current_thread().name)

    measured = compare_workers(run, 3, seconds=0.01)
    assert [one.workers for one in measured] == [1, 3]
    assert all(one.batches_per_s > 0 for one in measured)
    assert caller in seen
    assert len(seen) == 1 + 2 * 3, "three threads in each of two rounds"
    assert [one.workers for one in compare_workers(run, 1, seconds=0.01)] == [1]
