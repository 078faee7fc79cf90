"""The dashboard's figures and files, on a real server."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from app.api.dashboard import MOST_READERS
from tests.conftest import Serve
from tests.server import RunningServer

FAKE = "fake://?dim=8&base_ms=20&item_ms=1"


@contextmanager
def reading(server: RunningServer, **headers: str) -> Iterator[Iterator[tuple[str, Any]]]:
    """The events of the dashboard, as (name, data), from now on."""
    with httpx.stream("GET", server.url + "/dashboard/events", headers=headers, timeout=30) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        yield events_in(response.iter_lines())


def events_in(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def until_sample(events: Iterator[tuple[str, Any]], wanted: str) -> dict[str, Any]:
    """The first sample with at least one request that ended so."""
    for name, data in events:
        if name == "sample" and data["requests"][wanted]:
            found: dict[str, Any] = data
            return found
    raise AssertionError(f"no sample came with anything {wanted}")


def test_a_sample_has_what_the_service_did_in_its_second(serve: Serve) -> None:
    server = serve("--model", FAKE, "--max-batch-items", "8")
    with reading(server) as events:
        answers = server.embed_all(*[f"text {i}" for i in range(30)], ["one", "two", "three", "four", "five"])
        assert {one.status_code for one in answers} == {200}
        samples = [until_sample(events, "answered")]
        while sum(sample["requests"]["answered"] for sample in samples) < 31:
            samples.append(until_sample(events, "answered"))
    assert sum(sample["items"] for sample in samples) == 35
    assert sum(sum(sample["batches"]) for sample in samples) >= 5
    assert sum(sum(sample["waited_for"].values()) for sample in samples) >= 31
    assert all(0 < sample["device_busy"] <= 1 for sample in samples)
    last = samples[-1]
    assert last["latency_ms"]["p50"] <= last["latency_ms"]["p95"] <= last["latency_ms"]["p99"]
    assert last["bill_ms"]["forward"] >= 20
    assert last["held_back"]["by"] in ("clients", "device", "host")
    (slowest, *others) = last["slow"]
    assert len(others) == 9, "no more than ten"
    assert all(slowest["total_ms"] >= other["total_ms"] for other in others)
    assert sum(slowest["bill_ms"].values()) == pytest.approx(slowest["total_ms"], abs=0.01)


def test_requests_are_told_apart_by_how_they_ended(serve: Serve) -> None:
    server = serve("--model", FAKE + "&fail_on=BAD")
    with reading(server) as events, server.client() as client:
        client.post("/embed", json={"inputs": ""})
        assert until_sample(events, "refused")["requests"]["failed"] == 0
        client.post("/embed", json={"inputs": "BAD"})
        assert until_sample(events, "failed")["requests"]["answered"] == 0
        client.get("/health")
        client.get("/")  # where POST is work
        client.post("/embed", json={"inputs": "fine"})
        assert sum(until_sample(events, "answered")["requests"].values()) == 1, "only requests for work count"


def test_a_reader_gets_the_description_first_and_past_samples_at_once(serve: Serve) -> None:
    server = serve("--model", FAKE)
    with server.client() as client:
        client.post("/embed", json={"inputs": "fine"})
    with reading(server) as events:
        until_sample(events, "answered")
    with reading(server) as events:
        name, hello = next(events)
        assert name == "hello"
        assert (hello["model"], hello["state"], hello["simulated"]) == ("fake", "ready", True)
        assert until_sample(events, "answered")["at"], "the sample of before"


def test_readers_end_when_the_service_stops(serve: Serve) -> None:
    server = serve("--model", FAKE)
    with reading(server) as events:
        next(events)
        server.process.terminate()
        names = [name for name, data in events]
    assert set(names) <= {"hello", "sample"}
    assert server.process.wait(10) == 0


def test_readers_are_limited_and_one_that_left_makes_room(serve: Serve) -> None:
    server = serve("--model", FAKE)

    async def main() -> None:
        async with httpx.AsyncClient(base_url=server.url, limits=httpx.Limits(max_connections=200)) as client:
            requests = [client.build_request("GET", "/dashboard/events") for _ in range(MOST_READERS + 1)]
            readers = [await client.send(request, stream=True) for request in requests[:MOST_READERS]]
            refused = await client.send(requests[-1], stream=True)
            assert refused.status_code == 429
            await refused.aclose()
            await readers[0].aclose()

            async def status() -> int:
                again = await client.send(client.build_request("GET", "/dashboard/events"), stream=True)
                await again.aclose()
                return again.status_code

            async with asyncio.timeout(10):
                while await status() != 200:  # noqa: ASYNC110  # it is the server that changes
                    await asyncio.sleep(0.05)
            for reader in readers:
                await reader.aclose()

    asyncio.run(main())


def test_a_look_at_the_headers_of_the_figures_ends_and_takes_no_place(serve: Serve) -> None:
    server = serve("--model", FAKE)
    with server.client() as client:
        for _ in range(MOST_READERS + 1):
            answer = client.head("/dashboard/events")
            assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")


def test_the_figures_need_the_key_and_the_page_does_not(serve: Serve) -> None:
    server = serve("--model", FAKE, "--api-key", "secret")
    page = httpx.get(server.url + "/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert httpx.get(server.url + "/dashboard/events").status_code == 401
    with reading(server, authorization="Bearer secret") as events:
        assert next(events)[0] == "hello"


def test_the_dashboard_can_be_switched_off(serve: Serve) -> None:
    server = serve("--model", FAKE, "--dashboard", "off")
    assert httpx.get(server.url + "/").status_code == 405, "POST / is still there"
    assert httpx.get(server.url + "/dashboard/events").status_code == 404


def test_a_slow_request_is_in_the_log_with_its_bill(serve: Serve) -> None:
    server = serve("--model", FAKE, "--slow-request-ms", "10", "--log-format", "json")
    with server.client() as client:
        client.post("/embed", json={"inputs": "slow"}, headers={"x-request-id": "mine"})
    (line,) = [json.loads(line) for line in server.log().splitlines() if "a request was slow" in line]
    assert (line["request_id"], line["level"], line["path"]) == ("mine", "warning", "/embed")
    assert line["forward_ms"] >= 20
    assert line["total_ms"] == pytest.approx(
        sum(line[f"{name}_ms"] for name in ("parse", "tokenize", "queue", "forward", "respond")), abs=0.01
    )


def test_at_debug_every_request_is_a_line(serve: Serve) -> None:
    server = serve("--model", FAKE, "--log-level", "debug", "--log-format", "json")
    with server.client() as client:
        for i in range(3):
            client.post("/embed", json={"inputs": f"text {i}"})
    lines = [json.loads(line) for line in server.log().splitlines() if '"answered"' in line]
    assert [line["inputs"] for line in lines] == [1, 1, 1]
    assert all(line["waited_for"] == "nothing" and line["batch_items"] == 1 for line in lines)
