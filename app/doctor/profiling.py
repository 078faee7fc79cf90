"""Running calls under torch's profiler, and what the profiler and an operator cost on this machine."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from app.doctor.bill import Counts
from app.doctor.lines import Key
from app.doctor.timeline import Prices, copies_by_kind, divide, hidden_synchronisations, products
from app.doctor.trace import MARK, Call, read_calls

PROBE_OPERATORS = 200
PROBE_ROUNDS = 5
WARM_S = 0.05
"""Calls that take less are run more than once under the profiler, and the first of them is not looked at: what the
profiler has just made is not in the caches yet."""
MOST_CALLS = 4


class ProfiledCall:
    """Looks into calls of one size with torch's profiler, on the thread that makes them."""

    def __init__(self, run: Callable[[], object], took_s: float, *, on_card: bool, prices: Prices) -> None:
        """Which operators pool is learnt from one call whose Python functions are recorded too, which makes it slow."""
        self._run = run
        self._on_card = on_card
        self._prices = prices
        self._last = profiled(run, took_s, on_card=on_card, stacks=True)[-1]
        self._pooling = self._last.pooling
        self._slower: list[float] = []

    def look(self, forward_s: float) -> Sequence[Mapping[Key, float]]:
        """The profiler says how a call's time is divided, `forward_s` how long it is without the profiler."""
        calls = profiled(self._run, forward_s, on_card=self._on_card)
        self._last = calls[-1]
        looks = []
        for call in calls:
            divided = divide(call, self._pooling, self._prices, on_card=self._on_card)
            seen_s = sum(divided.values()) / 1e6
            self._slower.append(seen_s / forward_s)
            looks.append({key: us / 1e6 * forward_s / seen_s for key, us in divided.items()})
        return looks

    @property
    def slower(self) -> float:
        """How many times as long calls took under the profiler, without what it is known to take itself: the median."""
        return median(self._slower)

    @property
    def counts(self) -> Counts:
        call = self._last
        hidden = hidden_synchronisations(call, on_card=self._on_card)
        part = products(call, self._pooling, on_card=self._on_card)
        return Counts(len(call.operators), hidden, copies_by_kind(call), part, len(call.kernels))


def profiled(run: Callable[[], object], took_s: float, *, on_card: bool, stacks: bool = False) -> list[Call]:
    """Some calls under the profiler, on this thread; `took_s` is about what one takes. With `stacks`, Python's
    functions are recorded too."""
    calls = 1 if stacks else max(1, min(MOST_CALLS, int(WARM_S / max(took_s, 1e-6))))
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_card else [])]
    with profile(activities=kinds, with_stack=stacks) as found:
        for _ in range(calls):
            with record_function(MARK):
                run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        found.export_chrome_trace(str(path))
        read = read_calls(path.read_bytes())
    return read[1:] if len(read) > 1 else read


def measure_prices() -> Prices:
    """Measured with the smallest operator there is, a sum of two numbers."""
    one = torch.ones(1)

    def run() -> None:
        for _ in range(PROBE_OPERATORS):
            torch.add(one, one)

    with torch.inference_mode():
        run()
        plain, noted, operators = zip(*[_probe(run) for _ in range(PROBE_ROUNDS)], strict=True)
    event_s = (min(noted) - min(plain)) / PROBE_OPERATORS
    return Prices(max(0.0, event_s * 1e6), median(operators))


def _probe(run: Callable[[], None]) -> tuple[float, float, float]:
    """Seconds without and under the profiler, and the microseconds of an operator in the median."""
    plain_s = []
    for _ in range(MOST_CALLS):
        started = time.perf_counter()
        run()
        plain_s.append(time.perf_counter() - started)
    calls = profiled(run, min(plain_s), on_card=False)
    operators = [operator.took_us for call in calls for operator in call.operators]
    return min(plain_s), min(call.took_us for call in calls) / 1e6, median(operators)
