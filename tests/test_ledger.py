"""The ledger: which bills are kept, which are logged."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.api.bill import Shares, shares_of
from app.api.call import Call
from app.api.ledger import MOST_SHARES, MOST_WARNINGS, SLOWEST, Ledger, facts_of
from app.batching import Answer, Departure
from app.intake import Bill

BATCH = Departure(0.0, 7, 3, 40, 50, 100, "drained", 0.1, 0)
BILL = Bill("interactive", 1, 20, 9, 0, 0, None, Answer([], [], 9, 0.0, 0.001, 0.002, 0.004, 1, BATCH, "device"))


def call(request_id: str = "abc") -> Call:
    async def receive() -> Any:
        raise AssertionError

    return Call({"path": "/embed", "headers": [(b"x-request-id", request_id.encode())]}, receive)


def taking(total_s: float) -> Shares:
    return Shares(total_s, 0.001, 0.002, 0.003, 0.004, total_s - 0.010)


def ledger_of(**options: Any) -> Ledger:
    return Ledger(observe_respond=lambda seconds: None, **options)


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with capture_logs() as captured:
        yield captured


def test_segments_follow_one_another_and_add_up() -> None:
    one = call()
    answered = BILL._replace(way=BILL.way._replace(arrived=one.started + 0.0005))
    shares = shares_of(one, answered)
    assert shares.parse_s == pytest.approx(0.0005)
    assert sum(shares[1:]) == pytest.approx(shares.total_s)


def test_the_time_of_a_request_that_needed_no_batch_is_parsing_and_responding() -> None:
    one = call()
    one.parsed_s = 0.0001
    way = Answer[Any]([], [], 0, 0.0, 0.0, 0.0, 0.0, 0, BATCH, "nothing")
    shares = shares_of(one, BILL._replace(way=way))
    assert shares.parse_s == 0.0001
    assert sum(shares[1:]) == pytest.approx(shares.total_s)


def test_a_page_has_what_came_since_the_last_and_the_slowest_of_the_last_minute() -> None:
    ledger = ledger_of(slow_ms=0)
    for i in range(30):
        ledger.enter(call(f"r{i}"), BILL, taking(0.1 + i / 100))
    page = ledger.turn()
    assert len(page.shares) == 30
    assert [one.facts["request_id"] for one in page.slowest] == [f"r{i}" for i in range(29, 29 - SLOWEST, -1)]
    again = ledger.turn()
    assert not again.shares
    assert again.slowest == page.slowest


def test_of_very_many_requests_an_even_sample_is_kept_and_all_are_observed() -> None:
    observed: list[float] = []
    ledger = Ledger(slow_ms=0, observe_respond=observed.append)
    for i in range(10_000):
        ledger.enter(call(), BILL, taking(1 + i / 1000))
    shares = ledger.turn().shares
    assert MOST_SHARES / 2 <= len(shares) <= MOST_SHARES
    gaps = {round((after.total_s - before.total_s) * 1000) for before, after in pairwise(shares)}
    assert gaps == {16}
    assert len(observed) == 10_000
    ledger.enter(call(), BILL, taking(1))
    assert len(ledger.turn().shares) == 1, "the next second begins anew"


def test_the_slowest_are_forgotten_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = ledger_of(slow_ms=0)
    monkeypatch.setattr("time.time", lambda: 1000.0)
    ledger.enter(call("old"), BILL, taking(9))
    monkeypatch.setattr("time.time", lambda: 1061.0)
    ledger.enter(call("new"), BILL, taking(0.1))
    assert [one.facts["request_id"] for one in ledger.turn().slowest] == ["new"]


def test_a_slow_request_is_a_warning_with_its_bill_and_others_are_not_logged(lines: list[Any]) -> None:
    ledger = ledger_of(slow_ms=200)
    ledger.enter(call(), BILL, taking(0.2))
    ledger.enter(call("slow"), BILL, taking(0.21))
    (line,) = lines
    assert (line["log_level"], line["event"], line["request_id"]) == ("warning", "a request was slow", "slow")
    assert (line["total_ms"], line["forward_ms"], line["waited_for"], line["batch"]) == (210, 4, "device", 7)
    assert (line["batch_full"], line["batch_padding"], line["lane"]) == (0.4, 0.2, "interactive")
    assert ledger.turn().n_slow == 1
    assert ledger.turn().n_slow == 0


def test_a_flood_of_slow_requests_does_not_flood_the_log(lines: list[Any]) -> None:
    ledger = ledger_of(slow_ms=200)
    for i in range(500):
        ledger.enter(call(f"r{i}"), BILL, taking(0.3))
    assert ledger.turn().n_slow == 500
    assert len(lines) == MOST_WARNINGS + 1
    assert lines[-1]["requests"] == 500 - MOST_WARNINGS


def test_each_request_is_a_line_where_all_are_wanted(lines: list[Any]) -> None:
    ledger = ledger_of(slow_ms=200, log_all=True)
    for _ in range(20):
        ledger.enter(call(), BILL, taking(0.1))
    assert [line["log_level"] for line in lines] == ["debug"] * 20


def test_the_facts_of_a_request_have_all_segments_in_milliseconds() -> None:
    facts = facts_of(call(), BILL, taking(0.5))
    names = ("parse_ms", "tokenize_ms", "queue_ms", "forward_ms", "respond_ms")
    assert sum(facts[name] for name in names) == pytest.approx(facts["total_ms"])
