"""Convoy beside other servers of embeddings: the same model, texts and machine, all servers up, one awake at a time.

Installs each peer into an environment of its own below `.venv-peers`, starts Convoy (twice: the second is the noise)
and the peers, and drives them in turns, there and back: requests/s by connections; latency at a rate that all carry;
queries beside bulk; more than each can carry; clients that leave. The tables go between the marks of the document.

usage: python -m benchmarks.peers [--quick] [--peers infinity,mosec] [--tei-url http://127.0.0.1:8080] [--texts FILE]
"""

import argparse
import gc
import platform
import resource
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import uvloop

from benchmarks.load import ROOT
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.contest import Field, LineUp
from benchmarks.peers.corpus import passages_from, texts_from
from benchmarks.peers.course import Course, Plan, Records
from benchmarks.peers.document import Circumstances, cores, report, write_between_marks
from benchmarks.peers.wire import Wire
from benchmarks.peers.workloads import Driver

DOCUMENT = ROOT / "docs" / "comparison.md"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round in one number type, written nowhere")
    parser.add_argument("--peers", help="names of peers, with commas between them; all by default")
    parser.add_argument("--tei-url", help="a running text-embeddings-inference that takes part too")
    parser.add_argument("--texts", type=Path, help="a file with a text in each line; made-up questions by default")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--seconds", type=float, default=2.5, help="of each closed loop; other workloads take twice that"
    )
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument(
        "--rate", type=float, default=0, help="steady requests/s; by default half of what the slowest can"
    )
    parser.add_argument("--queries", type=float, default=10, help="queries a second beside bulk")
    parser.add_argument("--slo-ms", type=float, default=200, help="objective under overload")
    parser.add_argument("--overload", type=float, default=1.5, help="multiple of each one's own capacity")
    parser.add_argument("--leavers", type=int, default=500, help="clients that leave")
    parser.add_argument("--start-timeout", type=float, default=180, help="seconds that a server may take to start")
    parser.add_argument("--document", type=Path, help="where the tables go; docs/comparison.md, or none with --quick")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are ended too
    texts = texts_from(args.texts)
    begun = time.monotonic()
    plan = plan_of(args)
    with ExitStack() as stack:
        contestants = line_up(stack, args)
        gc.freeze()
        driver = Driver(texts, passages_from(texts))
        records = uvloop.run(Course(plan, contestants, driver, texts).run())
        text = report(plan, contestants, records, circumstances(args, texts, records, time.monotonic() - begun))
    print(text)
    document = args.document or (None if args.quick else DOCUMENT)
    if document is not None:
        write_between_marks(document, text)
        print(f"written into {document}", file=sys.stderr)


def plan_of(args: argparse.Namespace) -> Plan:
    quick = args.quick
    return Plan(
        rounds=1 if quick else args.rounds,
        seconds=min(1.5, args.seconds) if quick else args.seconds,
        connections=tuple([8, 32] if quick else args.connections),
        rate_per_s=args.rate,
        queries_per_s=args.queries,
        slo_ms=args.slo_ms,
        overload=args.overload,
        leavers=args.leavers,
        stay_s=0.05,
    )


def line_up(stack: ExitStack, args: argparse.Namespace) -> Field:
    """Start everybody who is asked for."""
    asked = {name.strip().casefold() for name in args.peers.split(",")} if args.peers is not None else None
    if asked is not None and (unknown := asked - {peer.name.casefold() for peer in PEERS}):
        raise SystemExit(f"No such peer: {', '.join(unknown)}. There are: {', '.join(peer.name for peer in PEERS)}.")
    starting = LineUp(stack, args.start_timeout)
    starting.convoy(both_dtypes=not args.quick)
    for peer in PEERS:
        if asked is None or peer.name.casefold() in asked:
            starting.peer(peer, both_dtypes=not args.quick)
    if args.tei_url is not None:
        starting.elsewhere("TEI", Wire("/embed"), args.tei_url)
    return starting.field


def circumstances(args: argparse.Namespace, texts: list[str], records: Records, seconds: float) -> Circumstances:
    flags = [Path(flag).name if Path(flag) == args.texts else flag for flag in sys.argv[1:]]
    return Circumstances(
        command=f'make bench-peers ARGS="{" ".join(flags)}"' if flags else "make bench-peers",
        machine=f"{cores()}, {_processor()}, Python {platform.python_version()}",
        date=time.strftime("%-d %B %Y"),
        minutes=seconds / 60,
        texts=texts,
        texts_name=args.texts.name if args.texts is not None else "made-up questions",
        driver_late_ms=max((one.late_ms for runs in records.steady.values() for one in runs), default=0.0),
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
