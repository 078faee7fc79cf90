"""Tracing: a span for each request, with a child for each segment of its bill, and one for each batch, linked to the
requests that it carried. OpenTelemetry, over OTLP; where it goes and what is sampled, the standard variables say."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app import __version__
from app.api.bill import Shares
from app.api.call import Call
from app.api.ledger import facts_of
from app.batching import Departure
from app.intake import Bill

SERVICE_NAME = "convoy"
"""Unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES say otherwise."""
W3C = ("traceparent", "tracestate")

current: ContextVar[Span | None] = ContextVar("current", default=None)


class Tracing:
    """Turns what is reported of requests and batches into spans. Spans begin and end when that happened, not when it is
    reported; they are exported by a thread of the library's own, which drops what it cannot send in time."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """`provider` by default exports as the environment says."""
        self._provider = provider or _provider()
        self._tracer = self._provider.get_tracer(SERVICE_NAME, __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._epoch_ns = time.time_ns() - time.perf_counter_ns()

    @contextmanager
    def request(self, call: Call, route: str) -> Iterator[None]:
        """The time of a request, in the trace that its `traceparent` names."""
        carrier = {
            name.decode(): value.decode("latin-1") for name, value in call.scope["headers"] if name.decode() in W3C
        }
        method = call.scope["method"]
        span = self._tracer.start_span(
            f"{method} {route}",
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            start_time=self._ns(call.started),
            attributes={
                "http.request.method": method,
                "http.route": route,
                "url.path": call.scope["path"],
                "convoy.request_id": call.request_id.decode(),
            },
        )
        token = current.set(span)
        try:
            yield
        finally:
            current.reset(token)
            if call.status:
                span.set_attribute("http.response.status_code", call.status)
            if call.status >= 500:
                span.set_status(Status(StatusCode.ERROR))
            span.end()

    def answered(self, call: Call, bill: Bill, shares: Shares) -> None:
        """The bill of the current request: attributes of its span, and children."""
        span = current.get()
        if span is None or not span.is_recording():
            return
        facts = facts_of(call, bill, shares)
        span.set_attributes({f"convoy.{name}": value for name, value in facts.items() if not name.endswith("_ms")})
        parent = set_span_in_context(span)
        at = call.started
        for name, seconds in zip(Shares._fields[1:], shares[1:], strict=True):
            child = self._tracer.start_span(name.removesuffix("_s"), parent, start_time=self._ns(at))
            at += seconds
            child.end(self._ns(at))

    def batch_finished(self, batch: Departure, seconds: float, tags: Sequence[object]) -> None:
        """A batch that ran from when it left until now; `tags` are the contexts of its requests' spans."""
        links = [Link(context) for context in tags if isinstance(context, SpanContext)]
        if not links:
            return  # none of its requests is sampled
        attributes: dict[str, Any] = {f"convoy.batch.{name}": value for name, value in batch._asdict().items()}
        attributes["convoy.batch.seconds"] = seconds
        span = self._tracer.start_span(
            "batch", kind=SpanKind.INTERNAL, links=links, attributes=attributes, start_time=self._ns(batch.left_at)
        )
        span.end()

    @staticmethod
    def tag() -> object:
        """What the batcher is to be told with the current request: the context of its span, where that is sampled."""
        span = current.get()
        return span.get_span_context() if span is not None and span.is_recording() else None

    def shut_down(self) -> None:
        """Export what is left; may block for some seconds."""
        self._provider.shutdown()

    def _ns(self, seconds: float) -> int:
        """A time of `time.perf_counter` as nanoseconds since 1970."""
        return self._epoch_ns + int(seconds * 1e9)


def _provider() -> TracerProvider:
    resource = Resource({"service.name": SERVICE_NAME, "service.version": __version__})
    provider = TracerProvider(resource=resource.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
