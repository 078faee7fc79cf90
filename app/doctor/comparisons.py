"""Comparisons by measuring: threads in a forward, workers side by side, copies from pinned and from pageable memory."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from app.doctor.report import Pinned, ThreadsCompared
from app.doctor.texts import inputs
from app.errors import OutOfMemory
from app.vectorizers.base import Encoding, Vectorizer
from app.vectorizers.cores import compare_workers

FULL_BATCH_TEXTS = 64
ROUNDS = 5
COPY_BYTES = 2**26


def full_batch(vectorizer: Vectorizer[Any]) -> list[Encoding]:
    """As many texts as the token budget takes, one at least."""
    batch: list[Encoding] = []
    for one in vectorizer.tokenize(inputs(FULL_BATCH_TEXTS, vectorizer.info)):
        if batch and sum(text.n_tokens for text in batch) + one.n_tokens > vectorizer.info.max_batch_tokens:
            break
        batch.append(one)
    return batch


def compare_threads(run: Callable[[], object], threads: int) -> ThreadsCompared:
    """In turns, on the calling thread, whose number of threads is left as it was."""
    best = {threads: float("inf"), 1: float("inf")}
    cores_used = 0.0
    try:
        for _ in range(ROUNDS):
            for count in best:
                torch.set_num_threads(count)
                run()
                started, processor_s = time.perf_counter(), time.process_time()
                run()
                took_s = time.perf_counter() - started
                best[count] = min(best[count], took_s)
                if count == threads:
                    cores_used = max(cores_used, (time.process_time() - processor_s) / took_s)
    finally:
        torch.set_num_threads(threads)
    return ThreadsCompared(best[threads] * 1e3, best[1] * 1e3, cores_used)


def texts_per_s_by_workers(vectorizer: Vectorizer[Any], batch: Sequence[Encoding], cores: int) -> Mapping[int, float]:
    """What one worker with all cores carries and as many as there are cores: as the warm-up found, or measured now."""
    found: Mapping[str, float] | None = vectorizer.info.details.get("texts_per_s_by_workers")
    if found is not None:
        return {int(count): rate for count, rate in found.items()}
    try:
        measured = compare_workers(lambda: vectorizer(batch), cores)
    except OutOfMemory:
        return {}
    return {one.workers: one.batches_per_s * len(batch) for one in measured}


def compare_copies(device: torch.device) -> Pinned:
    """The best of some copies of 64 MiB to a card, from either kind of host memory."""
    target = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    rates = []
    for pinned in (True, False):
        source = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=pinned)
        best = float("inf")
        for _ in range(ROUNDS + 1):
            started = time.perf_counter()
            target.copy_(source, non_blocking=True)
            torch.cuda.synchronize(device)
            best = min(best, time.perf_counter() - started)
        rates.append(COPY_BYTES / best / 1e9)
    return Pinned(*rates)
