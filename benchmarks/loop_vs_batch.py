"""The founding experiment: what a call costs, what a batch saves, which hooks fire, what reading the device costs.

(a) A two-layer encoder (two linear layers 512→512→512, a GELU between) on 2,000 vectors, one by one against one batch.
(b) A text pipeline three ways: a bare function that is handed its state at each call, item by item and in chunks of 8,
and the callable vectorizer. (c) `model(x)` against `model.forward(x)`, with a forward hook. (d) `.item()` at each step
against every 50 steps. That the ways of each come to the same numbers is checked before any is timed.

The ways take turns, there and back (A B C C B A), a few times in each round, so that drift falls on all alike; a way's
time in a round is the median of its turns, ratios are taken within a round, and `again` is the same way once more: its
ratio is the noise. On CUDA the device is synchronised before
and after every timed run. The table is printed in Markdown; `--plot` needs matplotlib (`pip install -e '.[plots]'`).

usage: python -m benchmarks.loop_vs_batch [--device auto] [--rounds 5] [--plot docs/loop-vs-batch] [--vectors 2000]
           [--texts 32] [--calls 1000] [--steps 200] [--turn-s 0.03]
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
import torch
from tqdm import tqdm

from app.vectorizers.devices import choose_device, describe_device, granted_cores
from benchmarks.loop_vs_batch_cases import Case, batch_case, hook_case, item_case
from benchmarks.loop_vs_batch_pipeline import pipeline_case

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


def report(cases: Sequence[Case], found: Sequence[Times], device: torch.device, rounds: int) -> str:
    """The table and the facts, in Markdown."""
    waits = (
        "Nothing is asynchronous on a CPU, so there was nothing to synchronise."
        if device.type == "cpu"
        else "The device was synchronised before and after each timed run."
    )
    lines = [
        f"{describe_device(device, None)}; PyTorch {torch.__version__}, float32, {torch.get_num_threads()} threads; "
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


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto (a GPU where there is one), cpu, cuda, cuda:N or mps")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plot", type=Path, help="draw the times too, into PLOT.svg and PLOT.png")
    parser.add_argument("--vectors", type=int, default=2000, help="of (a)")
    parser.add_argument("--texts", type=int, default=32, help="of (b)")
    parser.add_argument("--calls", type=int, default=1000, help="of (c)")
    parser.add_argument("--steps", type=int, default=200, help="of (d)")
    parser.add_argument("--turn-s", type=float, default=0.03, help="the least time of one way's turn")
    return parser.parse_args(words)


def main() -> None:
    args = arguments()
    # what the vectorizer has to say at its warm-up is not part of the document on stdout
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    torch.set_num_threads(granted_cores())
    device = choose_device(args.device, 0, None)
    cases = [
        batch_case(device, args.vectors),
        pipeline_case(device, args.texts),
        hook_case(device, args.calls),
        item_case(device, args.steps),
    ]
    found = measure(cases, device, args.rounds, args.turn_s)
    print(report(cases, found, device, args.rounds))
    if args.plot is not None:
        from benchmarks.loop_vs_batch_plot import draw, save  # matplotlib is needed for the plot alone

        save(draw(cases, found, describe_device(device, None)), args.plot)


if __name__ == "__main__":
    main()
