"""The load test in one command: batching off against on, or any services, and a report of what each carries in time.

usage: python -m loadtest.run [--quick] [--slo-ms 100] [--model MODEL] [--out report]
       python -m loadtest.run --target tei=http://one:8080 --target convoy=http://two:8000 --protocol tei
"""

import argparse
import datetime
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from loadtest import options
from loadtest.corpus import Corpus
from loadtest.errors import LoadTestFailed
from loadtest.findings import Findings, find
from loadtest.machine import describe
from loadtest.protocols import PROTOCOLS
from loadtest.report import Test, headline, write_report
from loadtest.samples import join_csv
from loadtest.service import Target, started
from loadtest.stopping import Stopped, stoppable
from loadtest.sweep import FULL, QUICK, Effort, Sweep
from loadtest.terminal import closing_lines

MODES = ("off", "on")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 with a report, 1 where the test could not be believed."""
    args = _parser().parse_args(arguments)
    try:
        with stoppable():
            _run(args)
    except LoadTestFailed as error:
        print(f"\nThe load test has failed: {error}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        print("\nStopped; there is no report.", file=sys.stderr)
        return stopped.exit_code
    return 0


def _run(args: argparse.Namespace) -> None:
    began, machine = time.monotonic(), describe()
    date = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    effort = _effort(args)
    rates = _rates(args, effort)
    _require_folder(args.out)
    if args.texts:
        Corpus.of_file(args.texts, seed=0)  # raises where it could not be read later
    with tempfile.TemporaryDirectory() as folder, _targets(args) as targets:
        _say(f"Each step takes {effort.seconds + effort.warmup_s:g} s; there are {effort.rounds} rounds.")
        sweep = Sweep(targets, effort, args.slo_ms, _locust_options(args), Path(folder), rates, _say)
        visits = sweep.run()
        said = {target.name: (target.info(), target.metrics()) for target in targets}
        _say("Reading the figures.")
        found = [find(target.name, visits[target.name], *said[target.name], args.slo_ms) for target in targets]
        _require_answers(found)
        parts = [(one.target, one.round, one.path) for mine in visits.values() for one in mine]
        join_csv(parts, args.out / "samples.csv.gz")
    test = Test(
        objective_ms=args.slo_ms, command=args.command, began=date, took_s=time.monotonic() - began, machine=machine,
        traffic=_in_words(args), seconds=effort.seconds, rounds=effort.rounds, local=not args.target,
    )  # fmt: skip
    page = write_report(args.out, test, found)
    _say("\n".join(["", headline(found, args.slo_ms), *closing_lines(found, args.slo_ms), f"report: {page}"]))


@contextmanager
def _targets(args: argparse.Namespace) -> Iterator[list[Target]]:
    """The services that were named, or the same one without and with batching, started one after the other, so that
    neither disturbs the other's warm-up."""
    if args.target:
        yield args.target
        return
    with ExitStack() as stack:
        running = []
        for mode in MODES:
            _say(f"Starting the service with --batching {mode}.")
            flags = ["--model", args.model, "--batching", mode, *args.serve_flags]
            flags += ["--warmup", "quick"] if args.quick and "--warmup" not in flags else []
            running.append(stack.enter_context(started(mode, flags, args.out / f"service-{mode}.log")))
        yield running


def _effort(args: argparse.Namespace) -> Effort:
    effort = QUICK if args.quick else FULL
    changes = {
        "seconds": args.seconds,
        "rounds": args.rounds,
        "warmup_s": args.warmup_s,
        "closed_s": args.closed_seconds,
    }
    effort = replace(effort, **{name: value for name, value in changes.items() if value is not None})
    return replace(effort, users=tuple(args.users)) if args.users is not None else effort


def _rates(args: argparse.Namespace, effort: Effort) -> dict[str, list[float]]:
    """The rates that were given, by service; raises LoadTestFailed where they do not fit the services."""
    names = [target.name for target in args.target] or list(MODES)
    for name in names:
        if names.count(name) > 1:
            raise LoadTestFailed(f"two services are called `{name}`; the report could not tell them apart.")
    rates = dict(args.rates)
    for name in rates:
        if name not in names:
            raise LoadTestFailed(f"--rates {name}=…: there is no service `{name}`, but {', '.join(names)}.")
    for name in names:
        if name not in rates and not effort.users:
            raise LoadTestFailed(f"without a closed loop there are no rates for `{name}`; give some with --rates.")
    return rates


def _require_folder(folder: Path) -> None:
    """Make the folder of the report; raises LoadTestFailed where nothing can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise LoadTestFailed(f"--out {folder} cannot be written to: {error.strerror}.") from error


def _locust_options(args: argparse.Namespace) -> list[str]:
    passed = ["--protocol", args.protocol, "--traffic", args.traffic, "--list-items", str(args.list_items)]
    passed += ["--served-model", args.served_model] if args.served_model else []
    return passed + (["--texts", str(args.texts.resolve())] if args.texts else [])


def _require_answers(found: Sequence[Findings]) -> None:
    for one in found:
        if not any(measure.counts["answered"] for measure in one.steps):
            raise LoadTestFailed(f"The service `{one.name}` answered no request at all.")


def _in_words(args: argparse.Namespace) -> str:
    kinds = {
        "single": "single queries",
        "list": f"lists of {args.list_items} passages",
        "mix": "queries and some lists",
    }
    texts = (
        f"the texts of {args.texts.name}" if args.texts else "the load test's own texts, each with a number of its own"
    )
    return f"{kinds[args.traffic]}, {texts}, over the protocol `{args.protocol}`"


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="less than three minutes, for a first look")
    add(
        "--slo-ms",
        type=options.positive,
        default=100.0,
        help="the objective: 99%% of requests are to be answered within it",
    )
    add("--out", type=Path, default=Path("report"), help="folder of the report")
    add("--model", default="bundled", help="what the started services serve, as for `python -m app serve`")
    add("--serve-flags", type=options.flags, default=[], help="more flags for the started services, as one string")
    add(
        "--target", type=options.target, action="append", default=[], metavar="NAME=URL",
        help="a running service to test instead; repeat it",
    )  # fmt: skip
    add("--protocol", choices=list(PROTOCOLS), default="convoy", help="how services are asked")
    add("--served-model", default="", help="the model that requests name (openai, infinity)")
    add("--traffic", choices=["single", "list", "mix"], default="single")
    add("--list-items", type=options.count, default=32, help="passages in a list")
    add("--texts", type=Path, help="a file with a text in each line, instead of the built-in ones")
    add("--rounds", type=options.count, help="how often everything is repeated")
    add("--seconds", type=options.positive, help="of each step in the open loop")
    add("--closed-seconds", type=options.positive, help="of each step in the closed loop")
    add("--warmup-s", type=options.not_negative, help="at the beginning of each step, not counted")
    add(
        "--rates", type=options.rates, action="append", default=[], metavar="NAME=R,R,…",
        help="requests/s to send instead of finding them",
    )  # fmt: skip
    add("--users", type=options.count, nargs="*", help="levels of the closed loop; none leaves it out")
    parser.set_defaults(command=shlex.join(["python", "-m", "loadtest.run", *sys.argv[1:]]))
    return parser


if __name__ == "__main__":
    sys.exit(main())
