"""What a run is written down as: its tables with the words that they need, put between the marks of a document."""

import statistics
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.catalogue import AGAIN, CONVOY, CORES, PEERS
from benchmarks.peers.contest import Field
from benchmarks.peers.course import Plan, Records
from benchmarks.peers.figures import Column
from benchmarks.peers.tables import (
    advantage_table,
    as_installed,
    better_list,
    closed_columns,
    figures_table,
    leaving_columns,
    like_for_like,
    mixed_columns,
    overload_columns,
    overload_names,
    resources_columns,
    steady_columns,
    table,
)
from benchmarks.peers.vectors import COUNT
from benchmarks.peers.workloads import BULK_PIPELINES, BULK_TEXTS, GIVE_UP_S

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a reader has to know of a run besides its figures."""

    command: str
    machine: str
    date: str
    minutes: float
    texts: list[str]
    texts_name: str
    driver_late_ms: float
    """By how much the driver sent later than due, at p99, in the worst of the steady runs."""


def report(plan: Plan, contestants: Field, records: Records, circumstances: Circumstances) -> str:
    """The whole of a run in Markdown, without the marks."""
    finalists = records.finalists
    closed, steady, mixed = closed_columns(records), steady_columns(records), mixed_columns(records)
    overload, leaving = overload_columns(records, plan.slo_ms), leaving_columns(records)
    resources = resources_columns(records, contestants)
    pairs = [(CONVOY, AGAIN), *((CONVOY, name) for name in finalists if name not in (CONVOY, AGAIN))]
    parts = [
        _how(plan, circumstances),
        "### Who took part",
        _settings(contestants),
        "### Requests per second, by connections",
        "Each connection sends its next single text when its last is answered. All number types were measured at one "
        f"number of connections, and each one's faster type in everything else: {', '.join(finalists)}.",
        figures_table(closed, contestants.names),
        "How many times as many Convoy answers, in the same number type:",
        advantage_table(closed, like_for_like(contestants)),
        *_installed(contestants, closed),
        f"### Latency at {records.rate_per_s:g} requests/s",
        "Arrivals at random (Poisson) at a rate that all of them can carry; latency from the moment a request was due.",
        *_both(steady, finalists, pairs),
        "### Queries beside bulk",
        f"{plan.queries_per_s:g} single queries a second, at random, alone and beside {BULK_PIPELINES} clients that "
        f"post lists of {BULK_TEXTS} passages, eight texts each.",
        *_both(mixed, finalists, pairs),
        f"### Overload: {plan.overload:g} times as much as each can carry",
        f"Arrivals at random at {plan.overload:g} times the most that each answered above; clients hang up after "
        f"{GIVE_UP_S:g} s. Each request says in a header how long its answer is of use ({plan.slo_ms:g} ms): Convoy "
        "reads that, the others do not; a line shows Convoy without it.",
        figures_table(overload, overload_names(records)),
        f"### {plan.leavers} clients that leave",
        f"They send one text each, wait {plan.stay_s * 1e3:g} ms and hang up; a single request comes right after them. "
        "*Computed after* is the CPU time spent from then on, in texts at 32 connections: of the work that was "
        "abandoned, about how much was done all the same.",
        *_both(leaving, finalists, pairs),
        "### Vectors, memory, start",
        f"*Least cosine* to sentence-transformers in float32 over {COUNT} texts sent at once and a list. Memory is "
        "after all workloads, shared pages in shares. *Start* is from the process to the first answer; Convoy "
        "measures the machine in that time.",
        figures_table(resources, contestants.names),
        "### What each was better at than Convoy",
        better_list([*closed, *steady, *mixed, *overload, *leaving, *resources], finalists),
        *_absent(contestants),
    ]
    return "\n\n".join(part for part in parts if part)


def write_between_marks(document: Path, text: str) -> None:
    """Replace what lies between the document's marks; raises ValueError where it has none."""
    before, begin, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{document} has no marks {BEGIN} and {END}")
    document.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _how(plan: Plan, circumstances: Circumstances) -> str:
    words = statistics.median(len(text.split()) for text in circumstances.texts)
    return (
        f"`{circumstances.command}` on {circumstances.date}, {circumstances.minutes:.0f} minutes. "
        f"{circumstances.machine}. {len(circumstances.texts):,} texts ({circumstances.texts_name}), {words:.0f} words "
        f"in the median. {plan.rounds} rounds, {plan.seconds:g} s for each number of connections. Cells are medians "
        f"with the range over the rounds. The driver sent at most {circumstances.driver_late_ms:.1f} ms later than due "
        "(p99 of the worst steady run), which counts as latency."
    )


def _settings(contestants: Field) -> str:
    rows = [[CONVOY, "this repository", f"defaults, on the CPU (it chose {contestants.dtype})"]]
    for peer in PEERS:
        if (found := contestants.versions.get(peer.name)) is not None:
            stack = ", ".join(f"{name} {found[name]}" for name in ("torch", "transformers", "sentence-transformers"))
            rows.append([f"{peer.name}", f"{peer.package} {found[peer.package]} ({stack})", peer.settings])
    return table(["", "version", "settings"], rows)


def _both(columns: list[Column], names: list[str], pairs: list[tuple[str, str]]) -> list[str]:
    return [figures_table(columns, names), "How many times better Convoy did:", advantage_table(columns, pairs)]


def _installed(contestants: Field, closed: list[Column]) -> list[str]:
    pairs = as_installed(contestants)
    said = f"As installed, each with its defaults (Convoy in {contestants.dtype}, the others in float32):"
    return [said, advantage_table(closed, pairs)] if pairs else []


def _absent(contestants: Field) -> list[str]:
    if not contestants.absent:
        return []
    return ["### Who did not take part", "\n".join(f"- {name}: {why}" for name, why in contestants.absent.items())]


def cores() -> str:
    """How many cores are granted, in words."""
    return f"{CORES} cores"
