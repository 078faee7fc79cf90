"""The load test's parts: what it sends, when, what it counts as an answer, and what it makes of that."""

import math
import statistics
import time
from pathlib import Path

import gevent
import numpy as np
import orjson
import pytest

from loadtest.analysis import Bound, MaxRate, max_rate, noise, ratio
from loadtest.arrivals import SHAPES, arrivals_s, length_s, level_at, peak_of, steady
from loadtest.corpus import Corpus
from loadtest.errors import LoadTestFailed
from loadtest.measures import Measure, measure
from loadtest.metrics import Window
from loadtest.protocols import PROTOCOLS, WrongAnswer
from loadtest.samples import Outcome, Sample, Table, read_table, write_samples
from loadtest.steps import Step, closed_step, open_step, read_steps, write_steps
from loadtest.traffic import Played, Traffic, TrafficOver
from loadtest.workload import PROBES, Workload, outcome_of

UNIT = [0.6, 0.8]
BOUNDS: tuple[Bound, ...] = ("measured", "at_least", "at_most")


def test_queries_are_short_passages_long_and_no_two_alike() -> None:
    corpus = Corpus(1)
    queries, passages = [corpus.query() for _ in range(2000)], [corpus.passage() for _ in range(500)]
    words = [len(query.split()) for query in queries]
    assert 7 <= statistics.median(words) <= 11
    assert min(words) <= 4
    assert max(words) >= 25
    assert 50 <= statistics.median(len(passage.split()) for passage in passages) <= 90
    assert len(set(queries)) == len(queries)
    assert Corpus(2).query() == Corpus(2).query() != Corpus(3).query()


def test_texts_of_a_file_are_sent_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "texts"
    file.write_text("one\n\ntwo\n")
    assert {Corpus.of_file(file, 1).query() for _ in range(1)} <= {"one", "two"}
    file.write_text("\n")
    with pytest.raises(LoadTestFailed, match="holds no text"):
        Corpus.of_file(file, 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_arrivals_follow_the_course_of_a_shape(shape: str) -> None:
    course = SHAPES[shape](400.0, 100.0)
    assert length_s(course) == pytest.approx(100)
    times = np.array(arrivals_s(course, 1))
    assert np.all(np.diff(times) >= 0)
    for begin in range(0, 100, 10):
        expected = sum(level_at(course, begin + i / 100) for i in range(1000)) / 100
        found = int(np.sum((times >= begin) & (times < begin + 10)))
        assert abs(found - expected) < 5 * math.sqrt(expected) + 5
    assert peak_of(course) <= 400


def test_gaps_between_arrivals_are_exponential() -> None:
    gaps = np.diff(arrivals_s(steady(50, 400), 3))
    assert np.mean(gaps) == pytest.approx(1 / 50, rel=0.03)
    assert np.std(gaps) == pytest.approx(1 / 50, rel=0.05)


def test_steps_travel_through_their_file_unchanged(tmp_path: Path) -> None:
    steps = [open_step(12.5, 3, 1), closed_step(8, 2, 0.5)]
    write_steps(steps, tmp_path / "plan")
    assert read_steps(tmp_path / "plan") == steps


@pytest.mark.parametrize("name", PROTOCOLS)
def test_each_protocol_reads_what_its_servers_answer(name: str) -> None:
    protocol = PROTOCOLS[name]
    asked = orjson.loads(protocol.body(["a text"], "a-model"))
    assert asked[protocol.inputs] == "a text"
    assert orjson.loads(protocol.body(["a", "b"], "a-model"))[protocol.inputs] == ["a", "b"]
    rows = [UNIT, UNIT[::-1]]
    data = [{"index": 1, "embedding": rows[1]}, {"index": 0, "embedding": rows[0]}]
    answer = orjson.dumps(rows if protocol.rows is None else {protocol.rows: data})
    assert protocol.read(answer, 2).tolist() == np.array(rows, dtype=np.float32).tolist()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"[[0.6, 0.8], [0.6, 0.8]]", "shape"),
        (b"[[0.6, 0.9]]", "length"),
        (b"[[null, 0.8]]", "length"),
        (b"[]", "shape"),
        (b"not json", "not a list of vectors"),
        (b'{"error": "x"}', "not a list of vectors"),
        (None, "not a list of vectors"),
    ],
)
def test_what_is_no_vector_for_each_text_is_a_wrong_answer(answer: bytes | None, says: str) -> None:
    with pytest.raises(WrongAnswer, match=says):
        PROTOCOLS["tei"].read(answer, 1)


def test_a_text_that_gets_another_vector_than_at_the_start_is_a_wrong_answer() -> None:
    workload = Workload(Corpus(1), PROTOCOLS["tei"], None, probe_every=1)
    rows = [np.array([[math.cos(i), math.sin(i)]], dtype=np.float32) for i in range(PROBES)]
    workload.learn(rows)
    for _ in range(20):
        ask = workload.next()
        assert ask.expected is not None
        same, other = ask.expected.tolist(), (-ask.expected).tolist()
        workload.check(ask, orjson.dumps([same]))
        with pytest.raises(WrongAnswer, match="another vector"):
            workload.check(ask, orjson.dumps([other]))
        with pytest.raises(WrongAnswer, match="3 numbers where there were 2"):
            workload.check(ask, orjson.dumps([[1, 0, 0]]))


def test_a_mix_holds_its_share_of_lists() -> None:
    workload = Workload(Corpus(1), PROTOCOLS["tei"], None, traffic="mix", list_items=7, list_share=0.25)
    sizes = [workload.next().n_texts for _ in range(2000)]
    assert set(sizes) == {1, 7}
    assert sizes.count(7) == pytest.approx(500, abs=100)


def test_refusals_and_failures_are_no_answers() -> None:
    assert [outcome_of(status) for status in (200, 429, 504, 500, 503, 0)] == [
        "answered", "shed", "expired", "failed", "failed", "failed",
    ]  # fmt: skip


class Pretended:
    """Users that answer themselves after a fixed time, for traffic without a server."""

    def __init__(self, steps: list[Step], users: int, answer_s: float) -> None:
        self.turns: list[tuple[int, float, float]] = []  # step, due, sent, both in seconds since the step began
        self.most = self.under_way = 0
        self.played: list[Played] = []
        self._answer_s = answer_s
        traffic = Traffic(steps, seed=1, patience_s=10, mark=lambda: None)
        everybody = [gevent.spawn(self._use, traffic) for _ in range(users)]
        traffic.play(self.played.append)
        gevent.joinall(everybody, raise_error=True)

    def _use(self, traffic: Traffic) -> None:
        while True:
            try:
                turn = traffic.take()
            except TrafficOver:
                return
            self.turns.append((turn.step, turn.due_s, time.perf_counter() - turn.begin_s))
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            gevent.sleep(self._answer_s)
            self.under_way -= 1
            traffic.give_back(turn)


def test_an_open_loop_sends_all_that_is_due_and_never_early() -> None:
    steps = [open_step(100, 0.6, 0.2), open_step(50, 0.5, 0.1)]
    pretended = Pretended(steps, users=60, answer_s=0.3)
    for number, step in enumerate(steps):
        due = sorted(due for at, due, _ in pretended.turns if at == number)
        assert due == pytest.approx(arrivals_s(step.course, 1 + number))
    assert all(sent >= due for _, due, sent in pretended.turns)
    assert [played.unsent for played in pretended.played] == [0, 0]


def test_an_open_loop_with_too_few_users_sends_late_and_counts_from_when_it_was_due() -> None:
    pretended = Pretended([open_step(100, 0.5, 0)], users=1, answer_s=0.05)
    assert len(pretended.turns) == len(arrivals_s(open_step(100, 0.5, 0).course, 1))
    assert max(sent - due for _, due, sent in pretended.turns) > 0.5


def test_a_closed_loop_has_as_many_under_way_as_it_should_and_no_more() -> None:
    pretended = Pretended([closed_step(5, 0.3, 0.1), closed_step(2, 0.2, 0)], users=20, answer_s=0.02)
    assert pretended.most == 5
    assert {at for at, _, _ in pretended.turns} == {0, 1}


def sample(latency_ms: float, outcome: Outcome = "answered", due_s: float = 1.0, sent_s: float | None = None) -> Sample:
    sent = due_s if sent_s is None else sent_s
    status = {"answered": 200, "shed": 429, "expired": 504, "failed": 0, "wrong": 200}[outcome]
    timing = 'queue;dur=2, forward;dur=5, total;dur=8, batch;desc="number=1 items=4 tokens=40"'
    return Sample("s", 1, due_s, sent, due_s + latency_ms / 1e3, True, outcome, status, "9", timing)


def table(samples: list[Sample], folder: Path) -> Table:
    write_samples(samples, folder / "samples.csv")
    return read_table(folder / "samples.csv")


STEP = Step("s", "open", steady(10, 11), 1)


def test_quick_refusals_do_not_flatter_latency(tmp_path: Path) -> None:
    samples = [sample(100.0)] * 90 + [sample(1.0, "shed")] * 6 + [sample(1.0, "expired")] * 3 + [sample(1.0, "failed")]
    found = measure(table(samples, tmp_path), STEP, 200)
    assert found.percentiles_ms[50] == pytest.approx(100)
    assert found.within_ms[50] == pytest.approx(100)
    assert found.within_ms[95] == math.inf
    assert found.counts == {"answered": 90, "shed": 6, "expired": 3, "failed": 1, "wrong": 0}
    assert found.goodput == pytest.approx(9.0)
    assert found.in_time == pytest.approx(0.9)
    assert found.rate == pytest.approx(10.0)
    assert found.bill_ms["forward"] == pytest.approx(5)
    assert found.bill_ms["outside"] == pytest.approx(92)


def test_what_was_never_sent_counts_as_never_answered(tmp_path: Path) -> None:
    found = measure(table([sample(10.0)] * 50, tmp_path), STEP, 200, unsent=50)
    assert found.in_time == pytest.approx(0.5)
    assert found.client_limited


def test_a_client_that_falls_behind_is_told_from_a_slow_service(tmp_path: Path) -> None:
    on_time = [sample(50.0, due_s=1 + i / 10) for i in range(100)]
    assert not measure(table(on_time, tmp_path), STEP, 200).client_limited
    behind = [sample(50.0, due_s=1 + i / 10, sent_s=1 + i / 9) for i in range(100)]
    assert measure(table(behind, tmp_path), STEP, 200).client_limited


def level(rate: float, p99: float, achieved: float = 1.0, requests: int = 1000) -> Measure:
    counts: dict[Outcome, int] = {"answered": requests, "shed": 0, "expired": 0, "failed": 0, "wrong": 0}
    return Measure(
        f"{rate}", "open", rate, rate, achieved, requests, counts, {99: p99}, {99: p99}, rate, 1.0, 0.0, {}
    )  # fmt: skip


def test_the_highest_rate_lies_where_the_curve_crosses_the_objective() -> None:
    found = max_rate([level(10, 20), level(20, 50), level(30, 200), level(40, 900)], 100)
    assert found is not None
    assert found.bound == "measured"
    assert found.per_s == pytest.approx(25.0)
    one_stall = [level(10, 150, requests=100), level(20, 50), level(30, 60), level(40, 900)]
    found = max_rate(one_stall, 100)
    assert found is not None
    assert found.per_s > 30, "a stall at a low rate hides what higher ones show"


def test_rates_that_the_client_limited_say_nothing() -> None:
    assert max_rate([level(10, 20), level(20, 500, achieved=0.9)], 100) == MaxRate(10, "at_least")
    assert max_rate([level(20, 500, achieved=0.9)], 100) is None


def test_a_bound_that_was_not_reached_is_no_measure() -> None:
    assert max_rate([level(10, 20), level(20, 30)], 100) == MaxRate(20, "at_least")
    assert max_rate([level(10, 200), level(20, math.inf)], 100) == MaxRate(10, "at_most")


def test_the_ratio_keeps_the_spread_of_its_rounds() -> None:
    on, off = MaxRate(300, "measured"), MaxRate(100, "measured")
    found = ratio(on, off, [(MaxRate(330, "measured"), off), (MaxRate(270, "measured"), off), (None, off)])
    assert found is not None
    assert (found.value, found.least, found.most, found.claim) == (3, 2.7, 3.3, "")
    noisy = noise([MaxRate(90, "measured"), MaxRate(110, "measured")])
    assert noisy is not None
    assert (noisy.least, noisy.most) == pytest.approx((0.9, 1.1))
    assert noise([on]) is None


def test_a_ratio_of_bounds_is_a_bound_or_nothing() -> None:
    measured, more, less = (MaxRate(100, bound) for bound in BOUNDS)
    claims = {
        (over.bound, under.bound): found.claim if (found := ratio(over, under, [])) is not None else None
        for over in (measured, more, less)
        for under in (measured, more, less)
    }
    assert claims == {
        ("measured", "measured"): "", ("measured", "at_least"): "at most ", ("measured", "at_most"): "more than ",
        ("at_least", "measured"): "at least ", ("at_least", "at_least"): None, ("at_least", "at_most"): "more than ",
        ("at_most", "measured"): "less than ", ("at_most", "at_least"): "less than ", ("at_most", "at_most"): None,
    }  # fmt: skip


BEFORE = """# TYPE convoy_batch_items histogram
convoy_batch_items_bucket{le="1.0"} 4.0
convoy_batch_items_bucket{le="2.0"} 5.0
convoy_batch_items_bucket{le="+Inf"} 5.0
convoy_batch_items_sum 6.0
convoy_batch_items_count 5.0
# TYPE convoy_device_busy_seconds counter
convoy_device_busy_seconds_total{device="0"} 10.0
"""
AFTER = BEFORE.replace('"1.0"} 4', '"1.0"} 6').replace('"2.0"} 5', '"2.0"} 9').replace('Inf"} 5', 'Inf"} 9')
AFTER = AFTER.replace("sum 6.0", "sum 14.0").replace("count 5.0", "count 9.0").replace('"0"} 10', '"0"} 13')


def test_metrics_are_read_as_what_they_grew_by() -> None:
    window = Window([(BEFORE, AFTER, 4.0), (BEFORE, AFTER, 4.0)])
    assert [(bucket.most, bucket.number) for bucket in window.buckets("convoy_batch_items")] == [
        (1.0, 4.0), (2.0, 4.0), (math.inf, 0.0),
    ]  # fmt: skip
    assert window.mean("convoy_batch_items") == pytest.approx(2.0)
    assert window.busy_share == pytest.approx(0.75)


def test_a_server_without_these_metrics_shows_none() -> None:
    window = Window([("", "", 1.0), ("", "# TYPE other gauge\nother 1\n", 1.0)])
    assert window.busy_share is None
    assert window.buckets("convoy_batch_items") == []
    assert window.mean("convoy_batch_items") is None
    assert window.by_label("convoy_waits_total", "cause") == {}
