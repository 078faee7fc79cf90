"""Estimating tokens before they are counted."""

import pytest

from app.token_estimate import TokenEstimate


def test_it_learns_the_ratio_of_the_texts_that_come() -> None:
    estimate = TokenEstimate(512)
    for _ in range(20):
        estimate.learn(64, 64 * 500, 64 * (2 + 300))
    assert estimate.of_text(500) == pytest.approx(302, abs=3)
    assert estimate.of_text(10) == pytest.approx(8, abs=1)


def test_one_short_text_hardly_moves_it_and_one_long_list_does() -> None:
    estimate = TokenEstimate(10_000)
    before = estimate.of_text(1000)
    estimate.learn(1, 5, 12)
    assert estimate.of_text(1000) == pytest.approx(before, abs=5)
    estimate.learn(100, 40_000, 40_200)
    assert estimate.of_text(1000) > 2 * before


def test_it_never_exceeds_what_the_model_reads() -> None:
    estimate = TokenEstimate(64)
    assert estimate.of_text(10**9) == 64
    assert estimate.of_ids(1000) == 64
    assert estimate.of_ids(7) == 7
