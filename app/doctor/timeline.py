"""Dividing a profiled call's time among the lines of the bill."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.doctor.lines import Key
from app.doctor.trace import Call, Operator, Span

READS = {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero"}
"""Operators that hand a number, or a size, from the device to Python."""
COPIES = {
    "aten::copy_", "aten::_to_copy", "aten::clone", "aten::contiguous", "aten::cat", "aten::stack",
    "aten::index_select", "aten::gather", "aten::repeat",
}  # fmt: skip
"""Operators that move numbers without changing what they say."""
PERHAPS_COPIES = {"aten::to", "aten::reshape", "aten::flatten"}
"""Operators that copy only where they must, by one of those above."""
VIEWS = {
    "aten::view", "aten::transpose", "aten::slice", "aten::select", "aten::as_strided", "aten::expand", "aten::permute",
    "aten::unsqueeze", "aten::squeeze", "aten::t", "aten::chunk", "aten::split", "aten::narrow", "aten::unflatten",
    "aten::detach", "aten::resolve_conj", "aten::resolve_neg", "aten::unbind", "aten::alias", "aten::lift_fresh",
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::view_as", "aten::expand_as",
}  # fmt: skip
"""Operators that only name memory, or ask for some."""
PRODUCTS = {
    "aten::linear", "aten::addmm", "aten::mm", "aten::matmul", "aten::bmm", "aten::baddbmm",
    "mkldnn::_linear_pointwise",
}  # fmt: skip
"""Operators that multiply matrices, and do little else."""
WAITS = {
    "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cuStreamSynchronize",
    "cuEventSynchronize", "cuCtxSynchronize",
}  # fmt: skip
"""Calls of the driver that come back when the device has done something."""
MEANT = {"cudaEventSynchronize", "cuEventSynchronize"}
"""The one wait of a batch that is meant: for its rows."""

Microseconds = dict[Key, float]


class Prices(NamedTuple):
    """What this machine charges: microseconds that the profiler takes for each event it notes, and what an operator
    takes that has next to nothing to do."""

    event_us: float
    operator_us: float


def divide(call: Call, pooling: frozenset[int], prices: Prices, *, on_card: bool) -> Microseconds:
    """A profiled call's time by line, without what the profiler itself took; `pooling` are the places of the operators
    that pool."""
    return _divide_on_card(call, pooling, prices) if on_card else _divide_on_host(call, pooling, prices)


def _divide_on_host(call: Call, pooling: frozenset[int], prices: Prices) -> Microseconds:
    """Where operators are done when they return: each one's time goes to one line, less the price that any has."""
    found: Microseconds = dict.fromkeys(("launches", "copies", "compute", "pooling", "synchronisation"), 0.0)
    for place, operator in enumerate(call.operators):
        took = max(0.0, operator.took_us - prices.event_us * len(operator.inner))
        line = _line(operator, place in pooling)
        least = min(took, prices.operator_us) if line in ("copies", "compute") else 0.0
        found["launches"] += least
        found[line] += took - least
    between = call.took_us - sum(operator.took_us for operator in call.operators)
    found["python"] = max(0.0, between - prices.event_us * len(call.operators))
    return found


def _line(operator: Operator, pools: bool) -> Key:
    if operator.name in READS:
        return "synchronisation"
    if pools:
        return "pooling"
    if operator.name in VIEWS:
        return "launches"
    if operator.name in PERHAPS_COPIES:
        return "copies" if COPIES.intersection(operator.inner) else "launches"
    return "copies" if operator.name in COPIES else "compute"


def _divide_on_card(call: Call, pooling: frozenset[int], prices: Prices) -> Microseconds:
    """Where the device works by itself: each moment goes to what held the call up then. That is the device if it did
    anything, else a call of the driver, else Python."""
    layers: list[tuple[Key, Sequence[Span]]] = [
        ("pooling", [span for span in call.kernels if span.place in pooling]),
        ("compute", [span for span in call.kernels if span.place not in pooling]),
        ("copies", call.copies),
        ("synchronisation", [span for span in call.driver if span.name in WAITS]),
        ("launches", [span for span in call.driver if span.name not in WAITS]),
    ]
    found, rest = share_out(call.start_us, call.start_us + call.took_us, layers)
    return found | {"python": max(0.0, rest - prices.event_us * call.n_events)}


def share_out(
    start_us: float, end_us: float, layers: Sequence[tuple[Key, Sequence[Span]]]
) -> tuple[Microseconds, float]:
    """How much of a time belongs to each layer's spans, and how much to none; a moment that several have belongs to the
    first of them."""
    taken: list[tuple[float, float]] = []
    found: Microseconds = {}
    covered = 0.0
    for key, spans in layers:
        taken = _united([*taken, *[(max(start_us, one.start_us), min(end_us, one.end_us)) for one in spans]])
        so_far = sum(end - start for start, end in taken)
        found[key] = so_far - covered
        covered = so_far
    return found, end_us - start_us - covered


def _united(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same moments, as spans that do not overlap."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def hidden_synchronisations(call: Call, *, on_card: bool) -> Mapping[str, int]:
    """What makes the host wait for the device, or would on a card, beside the one wait of each batch that is meant:
    how often each was called."""
    if on_card:
        return Counter(span.name for span in call.driver if span.name in WAITS and span.name not in MEANT)
    reads: Counter[str] = Counter()
    for operator in call.operators:
        if operator.name in READS:
            reads[operator.name] += 1
        else:
            reads.update(name for name in operator.inner if name in ("aten::item", "aten::nonzero"))
    return reads


def copies_by_kind(call: Call) -> Mapping[str, int]:
    """Copies between host and device as the profiler names them; the names tell pinned memory from pageable."""
    return Counter(span.name for span in call.copies)


def products(call: Call, pooling: frozenset[int], *, on_card: bool) -> float | None:
    """The part of computing that is matrix products: of operators, or of the kernels that they launched. None where
    nothing computed, or where kernels came out of a recorded forward, which has no operators."""
    took: list[tuple[str, float]] = []
    if on_card:
        if any(span.place is None for span in call.kernels):
            return None
        took = [(call.operators[span.place].name, span.took_us) for span in call.kernels if span.place is not None]
    else:
        took = [
            (one.name, one.took_us)
            for place, one in enumerate(call.operators)
            if _line(one, place in pooling) == "compute"
        ]
    whole = sum(us for _, us in took)
    return sum(us for name, us in took if name in PRODUCTS) / whole if whole else None
