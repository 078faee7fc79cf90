"""Rounds of the founding experiment: how its cases are timed, and the table of what was found."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tqdm import tqdm

from app.vectorizers.devices import describe_device
from benchmarks.loop_vs_batch_cases import Case

Times = Mapping[str, Sequence[float]]
"""Seconds a unit by way, one number for each round."""
WARM_UP_S = 0.3
"""Of each way before the first round: kernels are made at the first use of a shape, and clocks rise under load."""
PASSES = 3
"""There and back, in a round: the median of six turns leaves out those in which another process had the core."""


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given; a CPU has done it when the call returns."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def seconds_a_run(run: Callable[[], object], device: torch.device, least_s: float) -> float:
    """The mean over as many runs as take at least so long; nothing is under way on the device before or after each."""
    synchronize(device)
    runs, started = 0, time.perf_counter()
    while True:
        run()
        synchronize(device)
        runs += 1
        if (spent := time.perf_counter() - started) >= least_s:
            return spent / runs


def alternate(case: Case, device: torch.device, rounds: int, turn_s: float, progress: "tqdm[Any]") -> Times:
    """All ways of a case, in turns there and back; a way's time in a round is the median of its turns."""
    for run in case.ways.values():
        seconds_a_run(run, device, min(WARM_UP_S, 10 * turn_s))
    times: dict[str, list[float]] = {name: [] for name in case.ways}
    for _ in range(rounds):
        turns: dict[str, list[float]] = {name: [] for name in case.ways}
        for name in PASSES * [*case.ways, *reversed(list(case.ways))]:
            turns[name].append(seconds_a_run(case.ways[name], device, turn_s) / case.units)
            progress.update()
        for name, found in turns.items():
            times[name].append(statistics.median(found))
    return times


def measure(cases: Sequence[Case], device: torch.device, rounds: int, turn_s: float) -> list[Times]:
    """The times of each case, one after another."""
    gc.collect()
    gc.freeze()  # a collection that walks all of torch and transformers would fall on whoever's turn it is
    turns = sum(2 * PASSES * rounds * len(case.ways) for case in cases)
    found = []
    with tqdm(total=turns, leave=False, disable=None, unit="turn") as progress:
        for case in cases:
            progress.set_description(case.title[:3])
            found.append(alternate(case, device, rounds, turn_s, progress))
    return found


def shown_s(seconds: float) -> str:
    """Three digits, in microseconds or milliseconds."""
    value, unit = (seconds * 1e6, "µs") if seconds < 1e-3 else (seconds * 1e3, "ms")
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


def ratio(times: Times, way: str, other: str) -> str:
    """How many times as fast a way is as another: the median over the rounds, with its range."""
    ratios = [b / a for a, b in zip(times[way], times[other], strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) × {other}"


def report(
    cases: Sequence[Case], found: Sequence[Times], device: torch.device, rounds: int, *, sleeping: bool = False
) -> str:
    """The table and the facts, in Markdown; `sleeping` is what threads do while they wait for work."""
    waits = (
        "Nothing is asynchronous on a CPU, so there was nothing to synchronise."
        if device.type == "cpu"
        else "The device was synchronised before and after each timed run."
    )
    lines = [
        f"{describe_device(device, None)}; PyTorch {torch.__version__}, float32, threads: {torch.get_num_threads()}, "
        f"{'sleeping while they wait' if sleeping else 'waiting as OpenMP has it by default'}; "
        f"medians of {rounds} rounds. {waits}",
        "",
        "| what | way | time | times as fast (range over the rounds) |",
        "| --- | --- | --- | --- |",
    ]
    for case, times in zip(cases, found, strict=True):
        for i, way in enumerate(case.ways):
            each = f"{shown_s(statistics.median(times[way]))} a {case.unit}"
            ratios = "; ".join(ratio(times, way, other) for one, other in case.compared if one == way)
            lines.append(f"| {case.title if i == 0 else ''} | {way} | {each} | {ratios} |")
    return "\n".join([*lines, "", *(f"- {case.title[:3]} {case.fact}" for case in cases)])
