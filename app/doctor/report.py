"""The report: everything that was found, as plain values; what `--json` prints."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.doctor.bill import Bill, LeftOut
from app.doctor.lines import Kind
from app.doctor.machine import Machine
from app.doctor.number_types import NumberType
from app.doctor.suggestions import Suggestion
from app.doctor.sweep import Sweep


@dataclass(frozen=True, slots=True)
class Model:
    """The model as it was loaded; `workers` is how many threads would serve it."""

    name: str
    kind: str
    device: str
    device_kind: Kind
    dtype: str
    forward: str | None
    parameters: int | None
    dimension: int
    max_input_tokens: int
    workers: int
    simulated: bool


@dataclass(frozen=True, slots=True)
class Pinned:
    """How fast host memory reaches the card, in GB/s: from pinned memory, and from pageable."""

    pinned_gb_per_s: float
    pageable_gb_per_s: float


@dataclass(frozen=True, slots=True)
class ThreadsCompared:
    """Milliseconds of a full batch with all granted threads and with one, the best of some rounds; and how many cores
    all of them kept busy, by the processor time that they took."""

    all_ms: float
    one_ms: float
    cores_used: float


@dataclass(frozen=True, slots=True)
class Report:
    """What the doctor found.

    `profiler_event_us` and `operator_us` are what this machine charges for noting an event, and for an operator that
    has next to nothing to do.
    """

    version: str
    seconds: float
    model: Model
    machine: Machine
    number_types: Sequence[NumberType]
    pinned: Pinned | None
    threads_compared: ThreadsCompared | None
    profiler_event_us: float
    operator_us: float
    bills: Sequence[Bill]
    left_out: Sequence[LeftOut]
    sweep: Sweep
    suggestions: Sequence[Suggestion]
    not_seen_here: Sequence[str]
