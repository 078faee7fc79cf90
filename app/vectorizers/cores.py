"""Sharing a CPU's cores among forwards: many to one when there is little to do, one to each when there is much."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple

import torch

MEASURE_S = 0.25
ROUNDS = 2
WORTHWHILE = 1.05
"""More workers must carry so many times the texts of one, or one it is."""


class Cores:
    """Hands out cores to the forwards that run: enter it on the forward's own thread.

    One that starts alone takes all cores, one that starts beside others its share, at least one.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._running = 0
        self._lock = threading.Lock()
        self._own = threading.local()

    def __enter__(self) -> None:
        with self._lock:
            self._running += 1
            share = max(1, self.count // self._running)
        if getattr(self._own, "share", None) != share:
            torch.set_num_threads(share)  # for the calling thread
            self._own.share = share

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._running -= 1


class Measured(NamedTuple):
    """So many workers side by side ran so many batches a second."""

    workers: int
    batches_per_s: float


def compare_workers(
    run: Callable[[], object], cores: int, *, seconds: float = MEASURE_S, clock: Callable[[], float] = time.perf_counter
) -> list[Measured]:
    """How fast one worker with all cores is, and as many workers as there are cores; the best of some alternated
    rounds. `run` runs one full batch."""
    counts = [1, cores] if cores > 1 else [1]
    best = dict.fromkeys(counts, 0.0)
    for _ in range(ROUNDS):
        for workers in counts:
            best[workers] = max(best[workers], _rate(run, workers, seconds, clock))
    return [Measured(workers, rate) for workers, rate in best.items()]


def workers_that_pay(measured: Sequence[Measured]) -> int:
    """The count with the best throughput; one, where no other is clearly better."""
    alone = measured[0].batches_per_s
    best = max(measured, key=lambda one: one.batches_per_s)
    return best.workers if best.batches_per_s > WORTHWHILE * alone else 1


def _rate(run: Callable[[], object], workers: int, seconds: float, clock: Callable[[], float]) -> float:
    """Batches a second of so many threads; one is the calling thread itself, which has its cores' team already."""
    if workers == 1:
        return _repeat(run, seconds, clock)
    together = threading.Barrier(workers)

    def work() -> float:
        together.wait()
        return _repeat(run, seconds, clock)

    with ThreadPoolExecutor(workers) as threads:
        return sum(one.result() for one in [threads.submit(work) for _ in range(workers)])


def _repeat(run: Callable[[], object], seconds: float, clock: Callable[[], float]) -> float:
    run()
    started = clock()
    runs = 0
    while clock() - started < seconds:
        run()
        runs += 1
    return runs / (clock() - started)
