"""Finding the token budget, on a device of known law."""

import io
import sys

import pytest

from app.vectorizers import warmup
from app.vectorizers.base import WarmupStep


class Clock:
    """A clock that only the simulated device moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_sweep_finds_the_law_and_the_smallest_budget_near_the_peak() -> None:
    clock = Clock()

    def run(items: int, each: int) -> None:
        clock.now += 0.002 + 0.00001 * items * each

    budget = warmup.sweep(run, text_tokens=32, max_items=10_000, time_limit_s=100, clock=clock)
    assert budget.base_s == pytest.approx(0.002, rel=0.01)
    assert budget.token_s == pytest.approx(0.00001, rel=0.01)
    assert budget.max_batch_tokens == pytest.approx(19 * 200, rel=0.02)  # 95% of an affine law's peak: 19·base/slope


def test_the_sweep_keeps_to_its_time_and_to_the_most_items_of_a_batch() -> None:
    clock = Clock()

    def run(items: int, each: int) -> None:
        assert items <= 64
        clock.now += 0.01 * items

    budget = warmup.sweep(run, text_tokens=32, max_items=64, time_limit_s=4, clock=clock)
    assert clock.now <= 4
    assert budget.steps


def test_memory_ends_the_sweep_and_keeps_what_was_measured() -> None:
    clock = Clock()

    def run(items: int, each: int) -> None:
        if items > 8:
            raise MemoryError
        clock.now += 0.001 + 0.0001 * items

    budget = warmup.sweep(run, text_tokens=32, max_items=1000, time_limit_s=100, clock=clock)
    assert budget.steps[-1].items == 8


def test_a_flat_throughput_takes_the_least_budget_and_not_less() -> None:
    steps = [WarmupStep(tokens, tokens // 32, tokens * 0.001) for tokens in (32, 64, 128, 256, 512, 1024)]
    base_s, token_s = warmup.fit(steps)
    assert base_s == pytest.approx(0, abs=1e-9)
    assert token_s == pytest.approx(0.001)
    assert warmup.smallest_near_peak(base_s, token_s, steps) == 512


def test_a_disturbance_does_not_decide_the_budget() -> None:
    clock = Clock()
    calls = 0

    def run(items: int, each: int) -> None:
        nonlocal calls
        calls += 1
        disturbed = 0.05 if 5 < calls < 15 else 0.0
        clock.now += 0.002 + 0.00001 * items * each + disturbed

    budget = warmup.sweep(run, text_tokens=32, max_items=10_000, time_limit_s=20, clock=clock)
    assert budget.max_batch_tokens == pytest.approx(19 * 200, rel=0.02)


def test_a_slow_first_moment_does_not_end_the_sweep() -> None:
    clock = Clock()
    calls = 0

    def run(items: int, each: int) -> None:
        nonlocal calls
        calls += 1
        clock.now += 0.008 + 0.00013 * items * each + (0.5 if calls <= 3 else 0.0)

    budget = warmup.sweep(run, text_tokens=32, max_items=512, time_limit_s=4, clock=clock)
    assert len(budget.steps) >= 5
    assert budget.token_s == pytest.approx(0.00013, rel=0.1)
    assert budget.base_s == pytest.approx(0.008, rel=0.5)


def test_sizes_beyond_the_best_throughput_do_not_raise_the_budget() -> None:
    clock = Clock()

    def run(items: int, each: int) -> None:
        tokens = items * each
        clock.now += 0.004 + 0.00003 * tokens + 0.00006 * max(0, tokens - 1024)  # the caches hold 1,024 tokens

    budget = warmup.sweep(run, text_tokens=32, max_items=10_000, time_limit_s=100, clock=clock)
    assert budget.steps[-1].tokens > 4096
    assert budget.token_s == pytest.approx(0.00003, rel=0.01)
    assert budget.max_batch_tokens == 1024


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_sees_progress_and_a_file_does_not(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    stream, clock = Stream(), Clock()
    monkeypatch.setattr(sys, "stderr", stream)

    def run(items: int, each: int) -> None:
        clock.now += 0.01

    warmup.sweep(run, text_tokens=32, max_items=64, time_limit_s=4, clock=clock)
    assert ("measuring the model" in stream.getvalue()) == terminal
