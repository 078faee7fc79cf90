"""The profiler's trace of some calls, read into plain spans: operators, driver calls, and what ran on a card."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

MARK = "convoy: one call"
"""The name of the range that is put around each call."""
POOLING = ("pooling.py(", "forward/heads.py(")
"""In the names of Python's functions that make rows from tokens, ours and sentence-transformers'."""
DRIVER = ("cuda_runtime", "cuda_driver")
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


class Operator(NamedTuple):
    """An operator that Python called, from `start_us` on for `took_us`, and the names of those it called itself."""

    name: str
    start_us: float
    took_us: float
    inner: Sequence[str]


class Span(NamedTuple):
    """A call of the driver, or something on the device; `place` is that of the operator that led to it, if any."""

    name: str
    start_us: float
    took_us: float
    place: int | None = None

    @property
    def end_us(self) -> float:
        return self.start_us + self.took_us


class Call(NamedTuple):
    """One profiled call: when it was, its operators in their order, and their places that belong to pooling, as far as
    Python's functions were recorded."""

    start_us: float
    took_us: float
    operators: Sequence[Operator]
    pooling: frozenset[int] = frozenset()
    driver: Sequence[Span] = ()
    kernels: Sequence[Span] = ()
    copies: Sequence[Span] = ()

    @property
    def n_events(self) -> int:
        """Everything on the calling thread that cost the profiler some time to note."""
        return len(self.operators) + sum(len(one.inner) for one in self.operators) + len(self.driver)


def read_calls(raw: bytes) -> list[Call]:
    """The calls in a trace as torch's profiler exports it (Chrome's format)."""
    events = [event for event in orjson.loads(raw)["traceEvents"] if event.get("ph") == "X"]
    windows = [event for event in events if event["name"] == MARK and event.get("cat") == "user_annotation"]
    return [_call(window, events) for window in sorted(windows, key=lambda event: float(event["ts"]))]


def _call(window: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> Call:
    start, end = float(window["ts"]), float(window["ts"]) + float(window["dur"])
    within = [event for event in events if start <= event["ts"] < end]
    own = [event for event in within if event["tid"] == window["tid"]]
    operators = _operators([event for event in own if event.get("cat") == "cpu_op"])
    launched: dict[Any, int | None] = {}
    driver = []
    for event in own:
        if event.get("cat") in DRIVER:
            place = _place(operators, event["ts"])
            launched[event.get("args", {}).get("correlation")] = place
            driver.append(_span(event, place))
    device = [event for event in within if event.get("cat") in ON_DEVICE]
    places = {id(event): launched.get(event.get("args", {}).get("correlation")) for event in device}
    return Call(
        start,
        float(window["dur"]),
        operators,
        frozenset(_pooling(operators, own)),
        driver,
        [_span(event, places[id(event)]) for event in device if event["cat"] == "kernel"],
        [_span(event, places[id(event)]) for event in device if event["cat"] != "kernel"],
    )


def _operators(events: Sequence[Mapping[str, Any]]) -> list[Operator]:
    """Those that no other contains, in their order."""
    found: list[Operator] = []
    inner: list[str] = []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        if found and event["ts"] < found[-1].start_us + found[-1].took_us:
            inner.append(event["name"])
        else:
            inner = []
            found.append(Operator(event["name"], float(event["ts"]), float(event["dur"]), inner))
    return found


def _pooling(operators: Sequence[Operator], own: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    frames = [
        (event["ts"], event["ts"] + event["dur"])
        for event in own
        if event.get("cat") == "python_function" and any(part in event["name"] for part in POOLING)
    ]
    for place, operator in enumerate(operators):
        if any(start <= operator.start_us < end for start, end in frames):
            yield place


def _place(operators: Sequence[Operator], moment_us: float) -> int | None:
    """Of the operator that runs at a moment."""
    for place, one in enumerate(operators):
        if one.start_us <= moment_us < one.start_us + one.took_us:
            return place
    return None


def _span(event: Mapping[str, Any], place: int | None) -> Span:
    return Span(event["name"], float(event["ts"]), float(event["dur"]), place)
