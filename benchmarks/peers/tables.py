"""The tables of a run, in Markdown: figures with their spread, ratios within a round, and who was better at what."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.peers.catalogue import AGAIN, CONVOY
from benchmarks.peers.contest import FLOAT32, Field
from benchmarks.peers.course import NOT_TOLD, Records
from benchmarks.peers.figures import Column


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figures_table(columns: Sequence[Column], names: Sequence[str]) -> str:
    """Each contestant's figures: the median over the rounds, and their range."""
    rows = [[name, *(column.spread(name).text(column.digits) for column in columns)] for name in names]
    return table(["", *(column.title for column in columns)], rows)


def advantage_table(columns: Sequence[Column], pairs: Sequence[tuple[str, str]]) -> str:
    """For each pair (one, other): how many times better the one did; the pair of Convoy and itself is the noise."""
    compared = [column for column in columns if column.better is not None]
    rows = [
        [f"{one} / {other}", *(f"× {column.advantage(one, other).text(2)}" for column in compared)]
        for one, other in pairs
    ]
    return table(["", *(column.title for column in compared)], rows)


def values(records: dict[str, list[Any]], of: Callable[[Any], float]) -> dict[str, list[float]]:
    """One figure of every record."""
    return {name: [of(record) for record in runs] for name, runs in records.items()}


def closed_columns(records: Records) -> list[Column]:
    return [Column(f"{n}", records.rates(n), "more", what=f"requests/s with {n} connections") for n in records.closed]


def steady_columns(records: Records) -> list[Column]:
    at = f"at {records.rate_per_s:g} requests/s"
    return [
        Column("p50, ms", values(records.steady, lambda one: one.p50_ms), "less", 1, f"p50 {at}"),
        Column("p99, ms", values(records.steady, lambda one: one.p99_ms), "less", 1, f"p99 {at}"),
    ]


def mixed_columns(records: Records) -> list[Column]:
    def column(title: str, of: Callable[[Any], float], what: str) -> Column:
        return Column(title, values(records.mixed, of), "less", 1, what)

    return [
        column("alone p50, ms", lambda one: one.alone_p50_ms, "p50 of rare queries"),
        column("p95, ms", lambda one: one.alone_p95_ms, "p95 of rare queries"),
        column("beside bulk p50, ms", lambda one: one.beside_p50_ms, "p50 of queries beside bulk"),
        column("p95, ms", lambda one: one.beside_p95_ms, "p95 of queries beside bulk"),
        Column("bulk, texts/s", values(records.mixed, lambda one: one.bulk_per_s), "more", 0, "bulk beside queries"),
    ]


def overload_columns(records: Records, slo_ms: float) -> list[Column]:
    def share(title: str, of: Callable[[Any], float]) -> Column:
        return Column(title, values(records.overload, lambda one: 100 * of(one)))

    good = values(records.overload, lambda one: 100 * one.goodput)
    return [
        Column(f"within {slo_ms:g} ms, % of own capacity", good, "more", 0, "the share in time under overload"),
        share("refused, % of sent", lambda one: one.refused),
        share("late, %", lambda one: one.late),
        share("given up, %", lambda one: one.gave_up),
    ]


def leaving_columns(records: Records) -> list[Column]:
    runs = records.leaving
    return [
        Column("usual, ms", values(runs, lambda one: one.usual_ms), "less", 1, "a lone request"),
        Column(
            "first after, ms", values(runs, lambda one: one.first_ms), "less", 0, "the first request after they left"
        ),
        Column("as usual after, ms", values(runs, lambda one: one.normal_after_ms), "less", 0, "the time until usual"),
        Column("answered before", values(runs, lambda one: one.answered)),
        Column("computed after", values(runs, lambda one: one.computed), "less", 0, "work done for nobody"),
    ]


def resources_columns(records: Records, contestants: Field) -> list[Column]:
    """Once each: vectors, start, memory, and CPU at rest."""
    start = {one.name: [one.service.start_s] for one in contestants.contestants}
    idle = {name: [100 * share] for name, share in records.idle_cpu.items()}
    return [
        Column("least cosine", _once(records.cosine), digits=6),
        Column("start, s", start, "less", 1, "the start"),
        Column("memory, MB", _once(records.memory_mb), "less", 0, "memory"),
        Column("CPU at rest, % of a core", idle, digits=1),
    ]


def _once(values: dict[str, float]) -> dict[str, list[float]]:
    return {name: [value] for name, value in values.items()}


def like_for_like(contestants: Field) -> list[tuple[str, str]]:
    """Pairs (Convoy, peer) in the same number type, after Convoy and itself."""
    peers = [one for one in contestants.contestants if one.peer != CONVOY]
    return [(CONVOY, AGAIN), *((contestants.named(CONVOY, one.dtype) or CONVOY, one.name) for one in peers)]


def as_installed(contestants: Field) -> list[tuple[str, str]]:
    """Pairs (Convoy, peer) with the defaults of each: Convoy's choice of number type, the peer's float32."""
    pairs = ((CONVOY, one.name) for one in contestants.contestants if one.peer != CONVOY and one.dtype == FLOAT32)
    return [(CONVOY, AGAIN), *pairs] if contestants.dtype != FLOAT32 else []


def better_list(columns: Sequence[Column], finalists: Sequence[str]) -> str:
    """What each was better at than Convoy in the median, and whether Convoy's own noise explains it."""
    lines = []
    for name in finalists:
        if name in (CONVOY, AGAIN):
            continue
        found = []
        for column in columns:
            gain = column.advantage(name, CONVOY)
            if column.better is not None and gain.median > 1:
                within = ", within the noise" if gain.median <= _noise(column) else ""
                found.append(f"{column.what} (× {gain.text(2)}{within})")
        lines.append(f"- **{name}**: {'; '.join(found) or 'nothing that was measured here'}.")
    return "\n".join(lines)


def _noise(column: Column) -> float:
    """The most by which Convoy was better than itself."""
    noise = column.advantage(CONVOY, AGAIN)
    return max(noise.high, 1 / noise.low) if noise.low > 0 else math.inf


def overload_names(records: Records) -> list[str]:
    return [name for name in (*records.finalists[:1], NOT_TOLD, *records.finalists[1:]) if name in records.overload]
