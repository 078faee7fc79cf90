"""The machine in words: one row of the page for each thing that was found."""

from collections.abc import Sequence

from app.doctor.bill import Bill
from app.doctor.layout import count, gib, row
from app.doctor.machine import Machine
from app.doctor.number_types import NumberType
from app.doctor.report import Pinned, Report, ThreadsCompared

BUSY = 0.5
"""With so many processes for each core before the doctor came, figures are disturbed."""

STACKED = 0.6
"""Threads that keep less than this part of the cores busy wait for each other on the same ones."""


def machine_rows(report: Report) -> list[str]:
    """Lines of the page."""
    machine = report.machine
    rows = [
        ("processor", machine.cpu + "."),
        ("cores", _cores(machine)),
        ("threads", _threads(machine, report.model.workers)),
        *([("", _compared(report.threads_compared, machine.cores.granted))] if report.threads_compared else []),
        ("memory", _memory(machine)),
        ("cards", " ".join(machine.cards_explained)),
        *[("", _card_memory(machine, i)) for i in range(len(machine.cards))],
        ("driver", _driver(machine)),
        ("number types", _number_types(report.number_types, report.model.dtype)),
        ("pinned copies", _pinned(report.pinned, report.bills)),
        ("cudnn.benchmark", _cudnn(machine.cudnn_benchmark)),
    ]
    if machine.load is not None and machine.load > BUSY * machine.cores.granted:
        rows.append(("disturbed", _disturbed(machine.load)))
    return [line for label, words in rows for line in row(label, words)]


def _cores(machine: Machine) -> str:
    cores = machine.cores
    quota = "no quota of a cgroup" if cores.quota is None else f"a cgroup's quota of {cores.quota:g}"
    affinity = "" if cores.affinity is None else f", {cores.affinity} by affinity"
    return f"{cores.granted} granted to this process: {cores.machine} in the machine{affinity}, {quota}."


def _threads(machine: Machine, workers: int) -> str:
    threads = machine.threads
    return (
        f"torch takes {threads.within_operator} for one operator, {threads.between_operators} for operators beside "
        f"each other; the service would run {count(workers, 'worker')}."
    )


def _compared(threads: ThreadsCompared, granted: int) -> str:
    words = (
        f"A full batch takes {threads.all_ms:.3g} ms on {granted} threads, which kept {threads.cores_used:.1f} cores "
        f"busy, and {threads.one_ms:.3g} ms on one."
    )
    if threads.cores_used < STACKED * granted:
        words += (
            " The system runs these threads on fewer cores than it grants, as it does at times for as long as a "
            "process lives: another run may show other figures."
        )
    return words


def _memory(machine: Machine) -> str:
    memory = machine.memory
    limit = "no limit of a cgroup" if memory.limit_bytes is None else f"a cgroup's limit of {gib(memory.limit_bytes)}"
    return (
        f"{gib(memory.available_bytes)} free of {gib(memory.total_bytes)}, {limit}; this process took "
        f"{gib(memory.peak_bytes)} at its peak."
    )


def _card_memory(machine: Machine, number: int) -> str:
    card = machine.cards[number]
    return (
        f"cuda:{card.logical} has {gib(card.free_bytes)} free of {gib(card.total_bytes)}; tensors took "
        f"{gib(card.peak_bytes)} at their peak."
    )


def _driver(machine: Machine) -> str:
    built = f"torch {machine.torch} is built " + (f"for CUDA {machine.cuda}" if machine.cuda else "without CUDA")
    return f"{machine.driver or 'none of NVIDIA found'}; {built}; Python {machine.python}."


def _number_types(types: Sequence[NumberType], used: str) -> str:
    return "; ".join(_number_type(one) for one in types) + f". The model computes in {used}."


def _number_type(one: NumberType) -> str:
    if one.name == "float32":
        return "float32 yes"
    speed = f", a bare product {one.times_float32:.1f} times as fast as in float32" if one.times_float32 else ""
    return f"{one.name} {'yes' if one.in_hardware else 'not in hardware'} ({one.because}{speed})"


def _pinned(pinned: Pinned | None, bills: Sequence[Bill]) -> str:
    if pinned is None:
        return "none: there is no bus to a card."
    rates = f"{pinned.pinned_gb_per_s:.1f} GB/s from pinned memory, {pinned.pageable_gb_per_s:.1f} from pageable"
    seen = [f"{times} x {name}" for bill in bills[:1] for name, times in bill.counts.bus_copies.items()]
    return f"{rates}; in a call of one text: {', '.join(seen) or 'none seen by the profiler'}."


def _cudnn(benchmark: bool) -> str:
    if benchmark:
        return "on: every new shape is tried out first, which stalls; batches vary in shape, so it should be off."
    return "off, as it should be: batches vary in shape, and each new one would be tried out first."


def _disturbed(load: float) -> str:
    return (
        f"In the minute before, {load:.1f} processes wanted a core: what follows is slower and less steady than on a "
        "machine with nothing else to do."
    )
