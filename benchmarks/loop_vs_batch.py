"""The founding experiment: what a call costs, what a batch saves, which hooks fire, what reading the device costs.

(a) A two-layer encoder (two linear layers 512→512→512, a GELU between) on 2,000 vectors, one by one against one batch.
(b) A text pipeline three ways: a bare function that is handed its state at each call, item by item and in chunks of 8,
and the callable vectorizer. (c) `model(x)` against `model.forward(x)`, with a forward hook. (d) `.item()` at each step
against every 50 steps. That the ways of each come to the same numbers is checked before any is timed.

The ways take turns, there and back (A B C C B A), a few times in each round, so that drift falls on all alike; a way's
time in a round is the median of its turns, ratios are taken within a round, and `again` is the same way once more: its
ratio is the noise. On CUDA the device is synchronised before and after every timed run. The table is printed in
Markdown; `--plot` needs matplotlib (`pip install -e '.[plots]'`). All ways have all granted cores; `taskset -c 0`
before the command grants one. Threads wait for work as OpenMP has it by default, spinning for a while, so that a loop
is as fast here as in a script of one's own; this needs a quiet machine. `--sleeping-threads` lets them sleep at once,
as the service does: it bears neighbours, and each small product on two cores pays for waking a thread.

usage: python -m benchmarks.loop_vs_batch [--device auto] [--rounds 5] [--plot docs/loop-vs-batch] [--vectors 2000]
           [--texts 32] [--calls 1000] [--steps 200] [--turn-s 0.03] [--sleeping-threads]
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path


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
    parser.add_argument("--sleeping-threads", action="store_true", help="as in the service, not as OpenMP's default")
    return parser.parse_args(words)


def main() -> None:
    args = arguments()
    if not args.sleeping_threads:
        os.environ.pop("OMP_WAIT_POLICY", None)  # which this package sets, for all that it starts
    run(args)


def run(args: argparse.Namespace) -> None:
    """Measure and print; torch is imported here, since OpenMP reads its setting when it is loaded."""
    import structlog
    import torch

    from app.vectorizers.devices import choose_device, describe_device, granted_cores
    from benchmarks.loop_vs_batch_cases import batch_case, hook_case, item_case
    from benchmarks.loop_vs_batch_pipeline import pipeline_case
    from benchmarks.loop_vs_batch_rounds import measure, report

    # what the vectorizer has to say at its warm-up is not part of the document on stdout
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    torch.set_num_threads(granted_cores())  # as the vectorizer does
    device = choose_device(args.device, 0, None)
    cases = [
        batch_case(device, args.vectors),
        pipeline_case(device, args.texts),
        hook_case(device, args.calls),
        item_case(device, args.steps),
    ]
    found = measure(cases, device, args.rounds, args.turn_s)
    print(report(cases, found, device, args.rounds, sleeping=args.sleeping_threads))
    if args.plot is not None:
        from benchmarks.loop_vs_batch_plot import draw, save  # matplotlib is needed for the plot alone

        save(draw(cases, found, describe_device(device, None)), args.plot)


if __name__ == "__main__":
    main()
