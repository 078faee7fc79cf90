"""OpenTelemetry spans: the real service, exporting to a collector of the tests' own that reads OTLP."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.conftest import Serve

SEGMENTS = ["parse", "tokenize", "queue", "forward", "respond"]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


class Collector:
    """Takes spans over HTTP, as protobuf."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.service_names: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            names = [one.value.string_value for one in resource.resource.attributes if one.key == "service.name"]
            self.service_names.update(names)
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def attributes(span: Span) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value") for one in span.attributes}


def seconds(span: Span) -> float:
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9


def test_requests_and_batches_become_spans(serve: Serve, collector: Collector) -> None:
    server = serve(
        "--model", "fake://?dim=8&base_ms=100&item_ms=0&fail_on=BAD", "--tracing", "on",
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
    )  # fmt: skip

    async def main() -> None:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            first = asyncio.create_task(client.post("/embed", json={"inputs": "the first"}))
            await server.until(lambda: server.metric("convoy_batch_items_count"), 1)
            traced = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
            both = [
                client.post("/embed", json={"inputs": "second"}, headers=traced),
                client.post("/embed", json={"inputs": ["third", "fourth"]}),
            ]
            await asyncio.gather(first, *both)
            await client.post("/embed", json={"inputs": "BAD"})

    asyncio.run(main())
    assert server.stop() == 0, "what is left is exported at the end"
    assert collector.service_names == {"convoy"}

    requests = collector.named("POST /embed")
    assert len(requests) == 4
    (traced,) = [span for span in requests if span.trace_id.hex() == TRACE]
    assert traced.parent_span_id.hex() == PARENT
    facts = attributes(traced)
    assert (facts["http.route"], facts["http.response.status_code"], facts["convoy.inputs"]) == ("/embed", 200, 1)
    assert (facts["convoy.waited_for"], facts["convoy.batch_items"]) == ("device", 3)

    children = sorted(
        (span for span in collector.spans if span.parent_span_id == traced.span_id),
        key=lambda span: (span.start_time_unix_nano, span.end_time_unix_nano),
    )
    assert [span.name for span in children] == SEGMENTS
    assert sum(map(seconds, children)) == pytest.approx(seconds(traced), rel=0.03, abs=1e-3)
    assert seconds(children[3]) >= 0.1

    batches = {attributes(span)["convoy.batch.number"]: span for span in collector.named("batch")}
    shared = batches[2]
    in_it = {span.span_id for span in requests if attributes(span).get("convoy.batch") == 2}
    assert len(in_it) == 2
    assert {link.span_id for link in shared.links} == in_it
    assert seconds(shared) >= 0.1
    assert shared.start_time_unix_nano <= children[3].start_time_unix_nano + 1_000_000

    (failed,) = [span for span in requests if attributes(span)["http.response.status_code"] == 500]
    assert failed.status.code == Status.STATUS_CODE_ERROR


def test_a_request_that_its_client_does_not_sample_sends_no_span(serve: Serve, collector: Collector) -> None:
    server = serve("--model", "fake://?dim=8", "--tracing", "on", env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
    with server.client() as client:
        answer = client.post("/embed", json={"inputs": "a"}, headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
        assert answer.status_code == 200
    assert server.stop() == 0
    assert not [span for span in collector.spans if span.name in ("POST /embed", "batch", *SEGMENTS)]


def test_a_collector_that_is_not_there_costs_no_answer(serve: Serve) -> None:
    server = serve(
        "--model", "fake://?dim=8", "--tracing", "on",
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"},
    )  # fmt: skip
    answers = server.embed_all(*[f"text {i}" for i in range(50)])
    assert {one.status_code for one in answers} == {200}
    assert server.stop() == 0
