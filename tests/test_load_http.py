"""The whole service under open-loop load, on a simulated device with a known law."""

import asyncio
import json
from statistics import mean

from tests.conftest import Serve
from tests.open_loop import poisson
from tests.queueing import Service, mean_time_from_batches_s

LAW = Service(base_s=0.020, item_s=0.002, max_items=8)
DEADLINE_S = 0.3


def test_no_request_waits_longer_than_the_log_of_batches_explains(serve: Serve) -> None:
    """Items taken, items left and time of each batch say how long requests must have been in the service: more than
    that would be waiting that nobody sees, such as a device that idles while work is there."""
    server = serve(
        "--model", "fake://?dim=8&base_ms=20&item_ms=2", "--max-batch-items", "8",
        "--log-level", "debug", "--log-format", "json",
    )  # fmt: skip
    seconds = 12.0
    sent = asyncio.run(poisson(server.url + "/embed", 0.7 * LAW.capacity_per_s, seconds))
    assert {one.status for one in sent} == {200}
    lines = [json.loads(line) for line in server.log().splitlines()]
    batches = [line for line in lines if line["event"] == "batch"]
    assert sum(batch["items"] for batch in batches) == len(sent)
    explained_s = mean_time_from_batches_s(
        len(sent) / seconds,
        [batch["items"] for batch in batches],
        [batch["left_items"] for batch in batches],
        [batch["seconds"] for batch in batches],
    )
    measured_s = mean(one.server_s for one in sent)
    assert abs(measured_s / explained_s - 1) < 0.03, (measured_s, explained_s)


def test_under_overload_the_device_works_for_those_whom_it_can_answer_in_time(serve: Serve) -> None:
    """Half as much again as the device can carry: without deadlines at dispatch and admission by predicted wait, the
    queue would grow until nobody is answered in time."""
    server = serve(
        "--model", "fake://?dim=8&base_ms=50&item_ms=2", "--max-batch-items", "16", "--request-timeout-ms", "300"
    )
    capacity, seconds = 16 / 0.082, 6.0
    sent = asyncio.run(poisson(server.url + "/embed", 1.5 * capacity, seconds))
    in_time = [one for one in sent if one.status == 200 and one.seconds <= DEADLINE_S]
    assert len(in_time) > 0.5 * capacity * seconds, "goodput has collapsed"
    assert {one.status for one in sent} <= {200, 429, 504}
    refused = [one for one in sent if one.status == 429]
    assert refused
    assert all(int(one.retry_after or 0) >= 1 for one in refused)
    assert sum(one.status == 504 for one in sent) < 0.2 * len(sent), "most are told at once, not after their time"
