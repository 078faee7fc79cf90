"""The law of service: what it predicts, and how it follows the device."""

import random
from collections.abc import Callable, Iterator

import pytest

from app.batching import ServiceLaw


def learn(law: ServiceLaw, seconds: Callable[[int], float], sizes: Iterator[int] | range | list[int]) -> None:
    for tokens in sizes:
        law.learn(tokens, seconds(tokens))


def affine(base_s: float, slope_s: float) -> Callable[[int], float]:
    return lambda tokens: base_s + slope_s * tokens


def some_sizes(n: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randint(1, 500) for _ in range(n)]


def test_it_knows_nothing_at_first_and_predicts_nothing() -> None:
    law = ServiceLaw()
    assert not law.known
    assert law.seconds(100) == 0
    assert law.tokens_within(0.001) > 10**9


def test_an_affine_device_is_known_after_two_sizes() -> None:
    law = ServiceLaw()
    learn(law, affine(0.005, 0.0002), [10, 400])
    for tokens in (1, 77, 500):
        assert law.seconds(tokens) == pytest.approx(0.005 + 0.0002 * tokens, rel=0.35)
    learn(law, affine(0.005, 0.0002), some_sizes(20))
    for tokens in (1, 77, 500):
        assert law.seconds(tokens) == pytest.approx(0.005 + 0.0002 * tokens, rel=0.01)
    assert law.error < 0.02


def test_a_device_that_becomes_slower_is_believed_within_ten_batches() -> None:
    law = ServiceLaw(0.005, 0.0002)
    learn(law, affine(0.005, 0.0002), some_sizes(100))
    learn(law, affine(0.015, 0.0006), some_sizes(10, seed=1))
    assert law.seconds(250) == pytest.approx(0.165, rel=0.15)
    learn(law, affine(0.015, 0.0006), some_sizes(300, seed=2))
    assert law.base_s == pytest.approx(0.015, rel=0.05)
    assert law.slope_s == pytest.approx(0.0006, rel=0.05)


def test_batches_of_one_size_move_the_scale_and_leave_the_shape() -> None:
    law = ServiceLaw(0.010, 0.001)
    learn(law, affine(0.020, 0.002), [100] * 60)
    assert law.seconds(100) == pytest.approx(0.22, rel=0.01)
    assert law.base_s / law.slope_s == pytest.approx(10, rel=0.01)


def test_one_pause_of_the_machine_changes_nothing_and_three_are_a_new_law() -> None:
    law = ServiceLaw(0.010, 0.001)
    before = law.seconds(100)
    law.learn(100, 60.0)
    law.learn(100, 60.0)
    assert law.seconds(100) == before
    law.learn(100, 60.0)
    assert law.seconds(100) == pytest.approx(60, rel=0.01)
    learn(law, affine(0.010, 0.001), [100] * 3)
    assert law.seconds(100) == pytest.approx(before, rel=0.01)


def test_noise_does_not_bend_it_and_is_reported_as_its_error() -> None:
    law, rng = ServiceLaw(0.005, 0.0002), random.Random(3)
    for tokens in some_sizes(400):
        law.learn(tokens, (0.005 + 0.0002 * tokens) * rng.uniform(0.8, 1.2))
    assert law.seconds(250) == pytest.approx(0.055, rel=0.1)
    assert 0.03 < law.error < 0.2
    assert law.most_seconds(250) == pytest.approx(law.seconds(250) * (1 + law.error))


def test_neither_base_nor_slope_is_ever_negative() -> None:
    law = ServiceLaw()
    learn(law, lambda tokens: 1.0 / tokens, some_sizes(50))
    assert law.base_s >= 0
    assert law.slope_s >= 0
    law = ServiceLaw()
    learn(law, lambda tokens: 1e-6 * tokens**2, some_sizes(50))
    assert law.base_s >= 0
    assert law.slope_s >= 0


def test_the_largest_batch_within_a_time_keeps_to_it_but_never_below_half_of_the_throughput() -> None:
    law = ServiceLaw(0.010, 0.001)
    assert law.tokens_within(0.110) == pytest.approx(100, abs=1)
    assert law.tokens_within(0.001) == 10, "below that a batch would mostly pay for itself"
