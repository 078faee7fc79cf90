"""The doctor's suggestions: only those that apply, with the gain that the measurements predict."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from app.doctor.suggestions import Facts, Rate, Suggestion, suggest
from app.doctor.sweep import sweep_of
from app.vectorizers.base import WarmupStep

ALONE = Rate(1, 13, 100.0, 10.0, compute=0.4, products=0.3)
EIGHT = Rate(8, 104, 400.0, 20.0, compute=0.4, products=0.3)
SIXTY_FOUR = Rate(64, 832, 1000.0, 64.0, compute=0.4, products=0.3)
MANY = Rate(512, 6656, 1050.0, 488.0, compute=0.4, products=0.3)
FLAT = [ALONE, EIGHT._replace(texts_per_s=101.0)]
"""Where texts gain nothing by company."""


def found(**facts: Any) -> Sequence[Suggestion]:
    return suggest(Facts(**{"kind": "cpu", "batching": True, "rates": FLAT, **facts}))


def only(**facts: Any) -> Suggestion:
    (one,) = found(**facts)
    return one


def test_where_nothing_helps_nothing_is_suggested() -> None:
    assert found() == []
    assert suggest(Facts(kind="cpu", batching=True, rates=[])) == ()


def test_texts_together_gain_what_was_measured_with_the_fewest_that_nearly_reach_the_best() -> None:
    one = only(rates=[ALONE, EIGHT, SIXTY_FOUR, MANY])
    assert one.gain == 10.0
    assert "about 64 requests under way" in one.what
    assert "100 texts per second one by one, 1000 in calls of 64; such a call takes 64 ms instead of 10" in one.because


def test_with_batching_off_it_is_what_to_turn_on() -> None:
    assert "--batching on" in only(rates=[ALONE, EIGHT, SIXTY_FOUR], batching=False).what


def test_a_faster_type_speeds_up_the_matrix_products_alone() -> None:
    one = only(rates=[ALONE._replace(products=0.6)], half_gains={"bfloat16": 3.0, "float16": None})
    assert one.gain == pytest.approx(1 / (0.4 + 0.6 / 3))
    assert "--dtype bfloat16" in one.what
    assert found(half_gains={"bfloat16": 1.1}) == [], "hardly faster"
    assert found(half_gains={"bfloat16": 3.0}, dtype="float16") == [], "not float32"
    assert found(half_gains={"bfloat16": 3.0}, kind="simulated") == [], "a law has no number type"


def test_a_type_that_the_cpu_only_imitates_is_given_up() -> None:
    one = only(rates=[ALONE._replace(products=0.6)], dtype="bfloat16", half_gains={"bfloat16": 0.5})
    assert one.gain == pytest.approx(1 / (0.4 + 0.6 * 0.5))
    assert "--dtype float32" in one.what
    assert found(dtype="bfloat16", half_gains={"bfloat16": 2.0}) == []


def test_workers_are_suggested_only_where_the_settings_fix_their_number() -> None:
    rates = {1: 500.0, 2: 800.0}
    assert found(texts_per_s_by_workers=rates) == [], "as many as pay are taken anyhow"
    more = only(texts_per_s_by_workers=rates, workers_asked=1)
    assert (more.gain, "--workers 2" in more.what, more.what.startswith("More")) == (1.6, True, True)
    fewer = only(texts_per_s_by_workers={1: 800.0, 2: 500.0}, workers_asked=2)
    assert (fewer.gain, fewer.what.startswith("Fewer")) == (1.6, True)
    assert found(texts_per_s_by_workers=rates, workers_asked=2) == []
    assert found(texts_per_s_by_workers=rates, workers_asked=1, kind="cuda") == []


def test_fewer_threads_are_suggested_where_threads_hinder_each_other_clearly() -> None:
    assert only(cores=4, all_threads_ms=30.0, one_thread_ms=20.0).gain == 1.5
    assert found(cores=4, all_threads_ms=21.0, one_thread_ms=20.0) == []
    assert found(cores=1, all_threads_ms=30.0, one_thread_ms=20.0) == []


def test_a_budget_below_the_knee_costs_what_the_law_says() -> None:
    law = {"base_ms": 4.0, "token_us": 50.0, "knee_tokens": 1520, "budget_tokens": 80}
    one = only(**law, budget_is_set=True)
    assert one.gain == pytest.approx((1520 / 80.0) / (80 / 8.0))
    assert found(**law, budget_is_set=False) == []
    assert found(**{**law, "budget_tokens": 1520}, budget_is_set=True) == []


def test_cards_that_idle_are_named() -> None:
    one = only(kind="cuda", visible_cards=4, used_cards=1)
    assert one.gain == 4
    assert "1 of 4 visible cards" in one.because
    assert found(kind="cuda", visible_cards=4, used_cards=4) == []


def test_hidden_synchronisations_of_a_card_gain_the_time_that_is_waited() -> None:
    rates = [ALONE._replace(waits=0.2)]
    one = only(kind="cuda", rates=rates, hidden_synchronisations=7)
    assert one.gain == pytest.approx(1.25)
    assert found(rates=rates, hidden_synchronisations=7) == [], "on a CPU nobody waits"


def test_shorter_texts_gain_what_the_law_says_with_its_fixed_part_for_each_batch() -> None:
    rates = [EIGHT._replace(texts=100, tokens=1000, compute=0.8)]
    one = only(rates=rates, base_ms=5.0, token_us=50.0, budget_tokens=500)
    assert one.gain == pytest.approx((2 * 5 + 50) / (5 + 25))
    assert found(rates=[EIGHT], base_ms=5.0, token_us=50.0, budget_tokens=500) == [], "compute is not the limit"


def test_there_are_three_at_most_the_largest_gain_first_and_shorter_texts_last() -> None:
    rates = [ALONE, EIGHT._replace(compute=0.9, products=0.8)]
    facts = Facts(
        kind="cpu", batching=True, rates=rates, half_gains={"bfloat16": 3.0}, cores=2, all_threads_ms=30.0,
        one_thread_ms=10.0, base_ms=1.0, token_us=100.0, budget_tokens=512,
    )  # fmt: skip
    first, second, third = suggest(facts)
    assert (first.gain, "texts together" in first.what) == (4.0, True)
    assert (second.gain, "threads" in second.what) == (3.0, True)
    assert "shorter" in third.what
    assert third.gain < 1 / (0.2 + 0.8 / 3), "a larger gain was left out for it"
    without = suggest(dataclasses.replace(facts, token_us=0.0))
    assert [one.gain for one in without] == sorted((one.gain for one in without), reverse=True)
    assert "bfloat16" in without[2].what


# --- the knee they speak of -------------------------------------------------------------------------------------------


def steps(*tokens: int, base_ms: float, token_us: float) -> list[WarmupStep]:
    return [WarmupStep(n, max(1, n // 32), (base_ms + token_us / 1000 * n) / 1000) for n in tokens]


def test_the_knee_is_where_the_law_reaches_95_percent_of_what_it_promises() -> None:
    sweep = sweep_of(steps(32, 64, 128, 256, 512, 1024, 2048, base_ms=2.0, token_us=50.0), budget_tokens=512)
    assert [sweep.base_ms, sweep.token_us] == pytest.approx([2.0, 50.0])
    assert sweep.knee_tokens == pytest.approx(760, abs=1)
    assert sweep.knee_tokens / (2.0 + 0.05 * sweep.knee_tokens) == pytest.approx(0.95 / 0.05, rel=1e-3)
    assert sweep.reached
    assert sweep.steps[-1].reach == 1.0
    assert [step.reach for step in sweep.steps] == sorted(step.reach for step in sweep.steps)


def test_a_knee_beyond_the_sweep_is_not_reached() -> None:
    sweep = sweep_of(steps(32, 64, 128, 256, 512, base_ms=20.0, token_us=5.0), budget_tokens=512)
    assert (sweep.knee_tokens, sweep.reached) == (512, False)


def test_where_larger_batches_are_slower_by_the_token_the_knee_is_at_the_peak_at_most() -> None:
    measured = steps(32, 64, 128, 256, 512, base_ms=20.0, token_us=5.0)
    slower = WarmupStep(1024, 32, 10 * measured[-1].seconds)
    sweep = sweep_of([*measured, slower], budget_tokens=512)
    assert (sweep.knee_tokens, sweep.reached) == (512, True)
    assert sweep.steps[-1].reach < 1
