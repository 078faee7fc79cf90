"""The capacity planner: how many replicas carry a rate within an objective, and what latency to expect of them.

usage: python -m loadtest.plan --rate 2000 --slo-ms 50 --url http://127.0.0.1:8000 --lengths report/samples.csv.gz
       python -m loadtest.plan --rate 2000 --slo-ms 50 --report report

The law of service comes from a running service, or from a report, whose measured rate is then shown beside it.
Lengths are a CSV file with a column `tokens`, such as a report's samples.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from loadtest import options
from loadtest.analysis import readable
from loadtest.errors import LoadTestFailed
from loadtest.forecast import (
    OTHER_MS,
    TYPICAL_TOKENS,
    Forecast,
    Law,
    devices_in,
    expected_ms,
    forecast,
    law_of,
    lengths_in,
)
from loadtest.samples import read_table
from loadtest.service import Target

EDGE_PER_S = 4000.0
"""More requests a second than this are too many for one process to receive and answer, whatever the device does."""
MOST_REPLICAS = 100_000


class Plan(NamedTuple):
    """So many replicas, each with its part of the rate, and what is expected of them."""

    replicas: int
    least_replicas: int
    most_replicas: int
    rate_each: float
    expected_ms: dict[str, float]


def plan(law: Law, lengths: NDArray[np.float64], rate_per_s: float, carried: Forecast) -> Plan:
    """Raises LoadTestFailed where no number of replicas helps: a lone request takes longer than the objective."""
    counts = [_replicas(rate_per_s, each) for each in (carried.per_s, carried.most_per_s, carried.least_per_s)]
    each = rate_per_s / counts[0]
    return Plan(counts[0], counts[1], counts[2], each, expected_ms(law, lengths, each))


def _replicas(rate_per_s: float, each_per_s: float) -> int:
    if each_per_s <= 0:
        raise LoadTestFailed("Not even a lone request is answered within the objective; a faster device might.")
    needed = rate_per_s / min(each_per_s, EDGE_PER_S)
    if needed > MOST_REPLICAS:
        raise LoadTestFailed(
            f"{rate_per_s:g} requests/s need more than {MOST_REPLICAS:,} replicas, of which each carries "
            f"{readable(each_per_s)}/s; is the rate meant?"
        )
    return math.ceil(needed)


def lines(law: Law, lengths: NDArray[np.float64], rate_per_s: float, objective_ms: float) -> list[str]:
    """The plan in sentences."""
    carried = forecast(law, lengths, objective_ms)
    made = plan(law, lengths, rate_per_s, carried)
    at = made.expected_ms
    told = [
        f"law of service: {law}",
        f"texts: {np.mean(lengths):.1f} tokens in the mean, {np.percentile(lengths, 95):.0f} at the 95th percentile",
        f"one replica carries {readable(carried.per_s)} requests/s within {objective_ms:g} ms at p99 "
        f"({readable(carried.least_per_s)} to {readable(carried.most_per_s)} with the law's usual error)",
        f"{rate_per_s:g} requests/s need {made.replicas} replica{'s' if made.replicas > 1 else ''} "
        f"({made.least_replicas} to {made.most_replicas})",
        f"each then has {readable(made.rate_each)}/s: requests wait {readable(at['wait'])} ms in the mean, and take "
        f"{readable(at['p50'])} ms (p50), {readable(at['p95'])} ms (p95), {readable(at['p99'])} ms (p99)",
        f"that is {made.rate_each / carried.per_s:.0%} of what each carries: add some for peaks and for one that fails",
    ]
    if carried.per_s > EDGE_PER_S:
        told.append(f"counted with {EDGE_PER_S:g} requests/s a replica, which is what one process receives and answers")
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 where there is no plan."""
    args = _parser().parse_args(arguments)
    try:
        law, lengths, measured = _from_report(args) if args.report else (*_from_service(args), None)
        for line in lines(law, lengths, args.rate, args.slo_ms):
            print(line)
        if measured is not None:
            print(_compared(law, lengths, measured))
    except LoadTestFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _compared(law: Law, lengths: NDArray[np.float64], measured: dict[str, Any]) -> str:
    """What the report measured under its own objective, beside the forecast for that."""
    objective_ms, per_s = measured["objective_ms"], measured["per_s"]
    foretold = forecast(law, lengths, objective_ms).per_s
    return (
        f"check: the report measured {readable(per_s)}/s within {objective_ms:g} ms; the forecast is "
        f"{readable(foretold)}/s, {foretold / per_s - 1:+.1%}"
    )


def _from_service(args: argparse.Namespace) -> tuple[Law, NDArray[np.float64]]:
    target = Target("the service", args.url)
    law = law_of(target.info(), devices_in(target.metrics()), args.other_ms if args.other_ms is not None else OTHER_MS)
    if law is None:
        raise LoadTestFailed(f"{args.url}/info has no law of service; is Convoy running there, and has it loaded?")
    return law, _lengths(args)


def _from_report(args: argparse.Namespace) -> tuple[Law, NDArray[np.float64], dict[str, Any] | None]:
    try:
        results = orjson.loads((args.report / "results.json").read_bytes())
    except (OSError, ValueError) as error:
        raise LoadTestFailed(f"--report {args.report} holds no results.json to read: {error}.") from error
    try:
        target = results["targets"][-1] if args.target is None else _named(results["targets"], args.target)
        if target["law"] is None:
            raise LoadTestFailed(f"The report has no law of service for `{target['name']}`.")
        law = Law.from_dict(target["law"])
        if args.other_ms is not None:
            law = replace(law, other_ms=args.other_ms)
        best = target["best"]
        known = best is not None and best["bound"] == "measured"
        measured = {"objective_ms": results["test"]["objective_ms"], "per_s": best["per_s"]} if known else None
    except (LookupError, TypeError) as error:
        raise LoadTestFailed(f"--report {args.report} holds a results.json of another kind: {error!r}.") from error
    if args.lengths is None:
        args.lengths = args.report / "samples.csv.gz"
    return law, _lengths(args), measured


def _named(targets: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    for target in targets:
        if target["name"] == name:
            return target
    raise LoadTestFailed(f"The report knows no service `{name}`; it has {', '.join(one['name'] for one in targets)}.")


def _lengths(args: argparse.Namespace) -> NDArray[np.float64]:
    if args.lengths is None:
        return np.array([args.tokens])
    try:
        table = read_table(args.lengths, only=("tokens", "items"))
    except (OSError, ValueError) as error:
        raise LoadTestFailed(f"--lengths {args.lengths} cannot be read as CSV: {error}.") from error
    if not len(lengths := lengths_in(table)):
        what = "only empty values or zeros" if "tokens" in table.names else "no column `tokens`"
        raise LoadTestFailed(f"--lengths {args.lengths} holds {what}; it takes a count of tokens for each text.")
    return lengths


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--rate", type=options.positive, required=True, help="requests a second to carry, of single texts")
    add(
        "--slo-ms",
        type=options.positive,
        default=100.0,
        help="the objective: 99%% of requests are to be answered within it",
    )
    add(
        "--url",
        type=options.url,
        default="http://127.0.0.1:8000",
        help="a running service, best one that has seen such load",
    )
    add("--report", type=Path, help="a folder with a report, instead of a running service")
    add("--target", help="which service of the report; the last by default")
    add("--lengths", type=Path, help="a CSV file with a column `tokens`; a report's own samples where one is given")
    add("--tokens", type=options.positive, default=TYPICAL_TOKENS, help="of each text, where no lengths are given")
    add("--other-ms", type=options.not_negative, help="time outside queue and device: the network, parsing, answering")
    return parser


if __name__ == "__main__":
    sys.exit(main())
