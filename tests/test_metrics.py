"""Metrics and the cheap series behind them."""

import re

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from app.batching import Departure
from app.cards import Figures
from app.metrics import Metrics
from app.series import FOLD_AT, DeferredHistogram, PlainCounter
from app.vectorizers.base import ModelInfo
from tests.server import ROOT, metric_in


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
    batch = Departure(0.0, 1, 4, 60, 64, 100, "tokens", 0.4, 7)
    metrics.batch_dispatched(batch)
    metrics.requests_boarded("bulk", [0.001, 0.001], [0.01, 0.02], ["device", "budget"])
    metrics.batch_finished(batch, 0.5, [])
    for seconds in (0.001, 0.002, 0.003):
        metrics.observe_respond(seconds)
    metrics.slow_requests(1)
    metrics.loop_was_late(0.004)
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
        'convoy_batches_total{closed="tokens"}': 1,
        'convoy_waits_total{cause="budget"}': 1,
        "convoy_tokens_total": 60,
        "convoy_padding_tokens_total": 4,
        "convoy_predicted_batch_seconds_sum": 0.4,
        "convoy_prediction_ratio_sum": 1.25,
        "convoy_respond_seconds_count": 3,
        "convoy_slow_requests_total": 1,
        "convoy_loop_lag_seconds_sum": 0.004,
        "convoy_workers": 1,
        'convoy_wait_seconds_count{lane="bulk"}': 2,
        "convoy_batch_seconds_sum": 0.5,
        "convoy_out_of_memory_total": 1,
        "convoy_max_batch_tokens": 512,
        'convoy_requests_total{route="/embed",status="200"}': 1,
        "convoy_truncated_inputs_total": 2,
    }.items():
        assert metric_in(text, series) == value, series


DOCUMENTED = re.compile(r"^\| `(convoy_\w+)` \| (\w+) \|([^|]*)\| [^|]+ \|$", re.MULTILINE)
"""A row of the table: name, kind, labels, meaning."""


def test_the_documented_metrics_are_those_there_are() -> None:
    rows = DOCUMENTED.findall((ROOT / "docs" / "metrics.md").read_text())
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert len(documented) == len(rows), "a metric is documented twice"
    there: dict[str, tuple[str, set[str]]] = {}
    metrics = Metrics("1")
    metrics.expect_routes([("/embed", [200])])
    metrics.card_read(0, Figures(1, 2, 0.5))
    metrics.watch(
        ready=lambda: True,
        queue_items=lambda lane: 0,
        queue_tokens=lambda lane: 0,
        cache_bytes=lambda: 0,
        busy_seconds=lambda: [1.5],
        prediction_error=lambda: 0.1,
    )
    for family in text_string_to_metric_families(metrics.text().decode()):
        if family.name.startswith("convoy_") and not family.name.endswith("_created"):
            name = family.name + ("_total" if family.type == "counter" else "")
            there[name] = family.type, {label for one in family.samples for label in one.labels} - {"le"}
    assert documented == there


def test_busy_seconds_and_the_prediction_error_are_read_when_asked_for() -> None:
    metrics = Metrics("1")
    metrics.watch(
        ready=lambda: True,
        queue_items=lambda lane: 3,
        queue_tokens=lambda lane: 40,
        cache_bytes=lambda: 5,
        busy_seconds=lambda: [1.5, 2.5],
        prediction_error=lambda: 0.125,
    )
    text = metrics.text().decode()
    assert metric_in(text, 'convoy_device_busy_seconds_total{device="1"}') == 2.5
    assert metric_in(text, "convoy_prediction_error_ratio") == 0.125


def test_totals_are_what_has_been_counted() -> None:
    metrics = Metrics("1")
    for items, tokens in ((1, 10), (3, 30), (4000, 50_000)):
        metrics.batch_dispatched(Departure(0.0, 1, items, tokens, tokens + 1, 100, "drained", 0.0, 0))
    metrics.requests_boarded("interactive", [0.1], [0.1], ["lane"])
    metrics.request_ended("/embed", 504, 1.0)
    totals = metrics.totals()
    assert (totals.items, totals.tokens, totals.padding_tokens) == (4004, 50_040, 3)
    assert totals.batches == [1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert totals.causes["lane"] == 1
    assert totals.requests["/embed", "504"] == 1
