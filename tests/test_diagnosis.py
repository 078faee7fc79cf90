"""What holds the service back, from its numbers."""

from typing import Any

import pytest

from app.diagnosis import Numbers, diagnose

BUSY = Numbers(
    requests=1000, late=0, device_busy=0.97, batch_items=24.0, batch_reach=0.8, queue_ms=20.0, loop_lag_ms=2.0
)


@pytest.mark.parametrize(
    ("state", "changes", "by"),
    [
        ("loading", {}, "loading"),
        ("draining", {}, "draining"),
        ("failed", {}, "failed"),
        ("ready", {"requests": 0}, "idle"),
        ("ready", {}, "device"),
        ("ready", {"batch_reach": None}, "device"),
        ("ready", {"late": 20}, "overload"),
        ("ready", {"late": 10}, "device"),
        ("ready", {"batch_reach": 0.1, "batch_items": 1.2}, "clients"),
        ("ready", {"device_busy": 0.31, "queue_ms": 0.1}, "clients"),
        ("ready", {"device_busy": 0.31, "queue_ms": 12.0, "loop_lag_ms": 30.0}, "host"),
        ("ready", {"device_busy": 0.31, "queue_ms": 12.0}, "clients"),
    ],
)
def test_the_numbers_say_what_is_the_limit(state: str, changes: dict[str, Any], by: str) -> None:
    assert diagnose(state, BUSY._replace(**changes)).by == by


def test_the_sentence_has_the_numbers_in_it() -> None:
    assert "31%" in diagnose("ready", BUSY._replace(device_busy=0.31, queue_ms=0)).text
    assert "1.2 inputs" in diagnose("ready", BUSY._replace(batch_reach=0.1, batch_items=1.2)).text
    assert "5% of the requests" in diagnose("ready", BUSY._replace(late=50)).text
    assert "30 ms late" in diagnose("ready", BUSY._replace(device_busy=0.3, loop_lag_ms=30)).text
