"""Metrics and the cheap series behind them."""

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from app.metrics import Metrics
from app.series import FOLD_AT, DeferredHistogram, PlainCounter
from app.vectorizers.base import ModelInfo
from tests.server import metric_in


@given(st.lists(st.floats(0, 100), max_size=50))
def test_a_deferred_histogram_shows_what_the_librarys_own_would(values: list[float]) -> None:
    bounds = (0.1, 1.0, 25.0)
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    histogram = DeferredHistogram("h", "help", bounds, ours)
    reference = prometheus_client.Histogram("h", "help", buckets=bounds, registry=theirs)
    for value in values:
        histogram.observe(value)
        reference.observe(value)
    for line in generate_latest(theirs).decode().splitlines():
        if not line.startswith("#") and "_created" not in line:
            name, _, expected = line.rpartition(" ")
            assert abs(metric_in(generate_latest(ours).decode(), name) - float(expected)) < 1e-6


def test_observations_are_folded_before_they_pile_up_and_none_is_lost() -> None:
    registry = CollectorRegistry()
    histogram = DeferredHistogram("h", "help", (1.0,), registry)
    for _ in range(3 * FOLD_AT + 7):
        histogram.observe(0.5)
    text = generate_latest(registry).decode()
    assert metric_in(text, "h_count") == 3 * FOLD_AT + 7
    assert metric_in(text, 'h_bucket{le="1.0"}') == 3 * FOLD_AT + 7


def test_a_counter_shows_expected_series_at_zero() -> None:
    registry = CollectorRegistry()
    counter = PlainCounter("c", "help", ["kind"], registry)
    counter.expect("a")
    counter.counts["b",] += 2
    text = generate_latest(registry).decode()
    assert metric_in(text, 'c_total{kind="a"}') == 0
    assert metric_in(text, 'c_total{kind="b"}') == 2


def test_facts_arrive_in_their_series() -> None:
    metrics = Metrics("1")
    metrics.items_ended("interactive", "answered", 3)
    metrics.items_ended("bulk", "shed", 2)
    metrics.items_shared(1)
    metrics.asked_cache(2, 3)
    metrics.batch_dispatched(4, 60)
    metrics.requests_boarded("bulk", [0.001, 0.001], [0.01, 0.02])
    metrics.batch_finished(4, 60, 7, 0.5)
    metrics.budget_lowered(128)
    metrics.request_ended("/embed", 200, 0.1)
    metrics.truncated(2)
    metrics.model_loaded(ModelInfo("m", 8, 16, 100, "cpu", "float32", 512, 1))
    text = metrics.text().decode()
    for series, value in {
        'convoy_items_total{lane="interactive",outcome="answered"}': 3,
        'convoy_items_total{lane="bulk",outcome="shed"}': 2,
        "convoy_shared_items_total": 1,
        "convoy_cache_hits_total": 2,
        "convoy_cache_misses_total": 3,
        "convoy_batch_items_count": 1,
        "convoy_batch_tokens_sum": 60,
        'convoy_wait_seconds_count{lane="bulk"}': 2,
        "convoy_batch_seconds_sum": 0.5,
        "convoy_out_of_memory_total": 1,
        "convoy_max_batch_tokens": 512,
        'convoy_requests_total{route="/embed",status="200"}': 1,
        "convoy_truncated_inputs_total": 2,
    }.items():
        assert metric_in(text, series) == value, series
