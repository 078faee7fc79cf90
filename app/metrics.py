"""Every metric's name, and the only code that knows Prometheus."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Info, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from app.batching import LANES, Cause, Closed, Departure, LaneName, Outcome
from app.cards import Figures
from app.series import DeferredHistogram, PlainCounter, ReadCounter
from app.vectorizers.base import ModelInfo

Observe = Callable[[float], None]
TraceBatch = Callable[[Departure, float, Sequence[object]], None]

log = structlog.get_logger(__name__)

SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
POWERS_OF_TWO = tuple(float(2**i) for i in range(11))
TOKENS = tuple(float(2**i) for i in range(3, 18))
RATIOS = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4, 2.0, 4.0)
OUTCOMES: tuple[Outcome, ...] = ("answered", "shed", "expired", "abandoned", "failed")
CLOSED: tuple[Closed, ...] = ("drained", "tokens", "items", "lane", "deadline")
CAUSES: tuple[Cause, ...] = ("nothing", "device", "budget", "lane", "growth")


class Totals(NamedTuple):
    """Counted since the start: HTTP requests by route and status; items, tokens and padding sent to devices; batches by
    their items, one number for each of `POWERS_OF_TWO` and one for more; requests by what they waited for; and the busy
    seconds of each device."""

    requests: Mapping[tuple[str, ...], int]
    items: int
    tokens: int
    padding_tokens: int
    batches: Sequence[int]
    causes: Mapping[Cause, int]
    busy_s: Sequence[float]


class Metrics:
    """The service's counters; implements `batching.Facts` for the batcher that feeds the device.

    Every series exists at zero from the start. Only the event loop's thread may report.
    """

    def __init__(self, version: str, *, log_batches: bool = False, trace_batch: TraceBatch | None = None) -> None:
        """`log_batches`: a line of the log, at `debug`, for each. `trace_batch` is told of each what we are."""
        self._log_batches = log_batches
        self._trace_batch = trace_batch
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self._requests = PlainCounter("convoy_requests", "HTTP requests answered.", ["route", "status"], registry)
        self._request_seconds = DeferredHistogram(
            "convoy_request_seconds",
            "Time from a request's headers to the end of its answer.",
            SECONDS,
            registry,
            "route",
        )
        self._items = PlainCounter("convoy_items", "Inputs, by how they ended.", ["lane", "outcome"], registry)
        for lane in LANES:
            for outcome in OUTCOMES:
                self._items.expect(lane, outcome)
        self._shared = Counter(
            "convoy_shared_items",
            "Inputs that got the row computed for another like them.",
            registry=registry,
        )
        self._cache_hits = Counter("convoy_cache_hits", "Inputs whose vector was in the cache.", registry=registry)
        self._cache_misses = Counter("convoy_cache_misses", "Inputs whose vector was not.", registry=registry)
        self._cache_bytes = Gauge("convoy_cache_bytes", "Memory that cached vectors take.", registry=registry)
        self._truncated = Counter("convoy_truncated_inputs", "Inputs cut to the model's maximum.", registry=registry)
        self._tokenize_seconds = self._seconds("convoy_tokenize_seconds", "Time a request spent being tokenized.")
        wait_seconds = DeferredHistogram(
            "convoy_wait_seconds", "Time from a request's tokenization to its dispatch.", SECONDS, registry, "lane"
        )
        self._waited = {lane: wait_seconds.children(lane) for lane in LANES}
        self._causes = PlainCounter(
            "convoy_waits", "Requests dispatched, by what they waited for.", ["cause"], registry
        )
        self._closed = PlainCounter("convoy_batches", "Batches, by why they held no more.", ["closed"], registry)
        for cause in CAUSES:
            self._causes.expect(cause)
        for closed in CLOSED:
            self._closed.expect(closed)
        self._respond_seconds = self._seconds(
            "convoy_respond_seconds", "Time from a request's last row to its answer, ready to be sent."
        )
        self._batch_seconds = self._seconds("convoy_batch_seconds", "Time a device was busy with one batch.")
        self._predicted_seconds = self._seconds(
            "convoy_predicted_batch_seconds", "What was predicted of that when the batch left."
        )
        self._prediction_ratio = DeferredHistogram(
            "convoy_prediction_ratio", "Measured time of a batch over predicted.", RATIOS, registry
        )
        self._batch_items = DeferredHistogram("convoy_batch_items", "Inputs in a batch.", POWERS_OF_TWO, registry)
        self._batch_tokens = DeferredHistogram("convoy_batch_tokens", "Tokens in a batch.", TOKENS, registry)
        self._tokens = PlainCounter("convoy_tokens", "Tokens of inputs sent to a device.", [], registry)
        self._padding = PlainCounter("convoy_padding_tokens", "Tokens computed besides, as padding.", [], registry)
        self._tokens.expect()
        self._padding.expect()
        self._busy = ReadCounter(
            "convoy_device_busy_seconds", "Time in which a device had at least one batch.", "device", registry
        )
        self._card_bytes = Gauge(
            "convoy_device_memory_bytes", "Memory of a GPU, as NVML says.", ["device", "kind"], registry=registry
        )
        self._card_utilisation = Gauge(
            "convoy_device_utilisation_ratio", "Time in which any kernel ran on a GPU, as NVML says.", ["device"],
            registry=registry,
        )  # fmt: skip
        self._lag_seconds = self._seconds(
            "convoy_loop_lag_seconds", "How late the event loop was for an appointment; it has fifty a second."
        )
        self._slow = Counter(
            "convoy_slow_requests", "Requests answered after more than --slow-request-ms.", registry=registry
        )
        self._splits = Counter("convoy_batch_splits", "Failed batches run again as two halves.", registry=registry)
        self._item_failures = Counter(
            "convoy_item_failures", "Inputs that failed alone on the device.", registry=registry
        )
        self._lowered = Counter("convoy_out_of_memory", "Times the device ran out of memory.", registry=registry)
        self._workers_lost = Counter("convoy_workers_lost", "Worker threads that have died.", registry=registry)
        self._budget = Gauge("convoy_max_batch_tokens", "The token budget in force.", registry=registry)
        self._workers = Gauge("convoy_workers", "Worker threads that run the model.", registry=registry)
        self._ceiling = Gauge(
            "convoy_ceiling_tokens_per_second", "What the model reached at warm-up; 0 where not measured.",
            registry=registry,
        )  # fmt: skip
        self._prediction_error = Gauge(
            "convoy_prediction_error_ratio", "By how much predictions have lately been wrong.", registry=registry
        )
        self._ready = Gauge("convoy_ready", "1 while the service takes requests.", registry=registry)
        self._queue_items = Gauge(
            "convoy_queue_items", "Inputs accepted and not dispatched.", ["lane"], registry=registry
        )
        self._queue_tokens = Gauge(
            "convoy_queue_tokens", "Their tokens, as estimated until they are counted.", ["lane"], registry=registry
        )
        self._info = Info("convoy_build", "What is running.", registry=registry)
        self._info.info({"version": version})
        self._model = Info("convoy_model", "What is served.", registry=registry)
        self._model.info({"name": "", "device": "", "dtype": ""})
        self._by_route: dict[tuple[str, int], tuple[tuple[str, str], Observe]] = {}

    def _seconds(self, name: str, help_text: str) -> DeferredHistogram:
        return DeferredHistogram(name, help_text, SECONDS, self.registry)

    def totals(self) -> Totals:
        """What has been counted so far, for whoever takes differences."""
        batch_items = self._batch_items.totals()
        return Totals(
            requests=dict(self._requests.counts),
            items=int(batch_items.sum),
            tokens=self._tokens.counts[()],
            padding_tokens=self._padding.counts[()],
            batches=batch_items.counts,
            causes={cause: self._causes.counts[cause,] for cause in CAUSES},
            busy_s=self._busy.read(),
        )

    def text(self) -> bytes:
        """All series in Prometheus' text format."""
        return generate_latest(self.registry)

    # --- of the service ---------------------------------------------------------------------------------------------

    def expect_routes(self, routes: Iterable[tuple[str, Iterable[int]]]) -> None:
        """Create the series of each route and the statuses it can answer with."""
        for route, statuses in routes:
            for status in statuses:
                self._route(route, status)

    def watch(
        self,
        *,
        ready: Callable[[], bool],
        queue_items: Callable[[LaneName], int],
        queue_tokens: Callable[[LaneName], int],
        cache_bytes: Callable[[], int],
        busy_seconds: Callable[[], Sequence[float]],
        prediction_error: Callable[[], float],
    ) -> None:
        """Read these states whenever metrics are asked for."""
        self._ready.set_function(ready)
        self._cache_bytes.set_function(cache_bytes)
        self._busy.read = busy_seconds
        self._prediction_error.set_function(prediction_error)
        for lane in LANES:
            self._queue_items.labels(lane).set_function(partial(queue_items, lane))
            self._queue_tokens.labels(lane).set_function(partial(queue_tokens, lane))

    def model_loaded(self, model: ModelInfo) -> None:
        self._model.info({"name": model.name, "device": model.device, "dtype": model.dtype})
        self._budget.set(model.max_batch_tokens)
        self._workers.set(model.workers)
        self._ceiling.set(model.ceiling_tokens_per_s)

    def card_read(self, card: int, figures: Figures) -> None:
        self._card_bytes.labels(card, "used").set(figures.used_bytes)
        self._card_bytes.labels(card, "total").set(figures.total_bytes)
        self._card_utilisation.labels(card).set(figures.utilisation)

    def loop_was_late(self, seconds: float) -> None:
        self._lag_seconds.observe(seconds)

    # --- of requests ------------------------------------------------------------------------------------------------

    def request_ended(self, route: str, status: int, seconds: float) -> None:
        labels, observe = self._route(route, status)
        self._requests.counts[labels] += 1
        observe(seconds)

    def asked_cache(self, hits: int, misses: int) -> None:
        self._cache_hits.inc(hits)
        self._cache_misses.inc(misses)

    @property
    def observe_respond(self) -> Observe:
        """Is to be told of each request how long its answer took to make, in seconds."""
        return self._respond_seconds.observe

    def slow_requests(self, requests: int) -> None:
        self._slow.inc(requests)

    def truncated(self, inputs: int) -> None:
        self._truncated.inc(inputs)

    def _route(self, route: str, status: int) -> tuple[tuple[str, str], Observe]:
        series = self._by_route.get((route, status))
        if series is None:
            series = (route, str(status)), self._request_seconds.child(route)
            self._requests.expect(*series[0])
            self._by_route[route, status] = series
        return series

    # --- batching.Facts ---------------------------------------------------------------------------------------------

    def items_ended(self, lane: LaneName, outcome: Outcome, items: int) -> None:
        self._items.counts[lane, outcome] += items

    def items_shared(self, items: int) -> None:
        self._shared.inc(items)

    def batch_dispatched(self, batch: Departure) -> None:
        self._batch_items.observe(batch.items)
        self._batch_tokens.observe(batch.tokens)
        self._closed.counts[batch.closed,] += 1
        self._tokens.counts[()] += batch.tokens
        self._padding.counts[()] += batch.computed_tokens - batch.tokens

    def requests_boarded(
        self, lane: LaneName, prepared_s: Sequence[float], waited_s: Sequence[float], causes: Sequence[Cause]
    ) -> None:
        self._tokenize_seconds.observe_all(prepared_s)
        self._waited[lane](waited_s)
        for cause in causes:
            self._causes.counts[cause,] += 1

    def batch_finished(self, batch: Departure, seconds: float, tags: Sequence[object]) -> None:
        self._batch_seconds.observe(seconds)
        if batch.predicted_s:
            self._predicted_seconds.observe(batch.predicted_s)
            self._prediction_ratio.observe(seconds / batch.predicted_s)
        if self._log_batches:
            log.debug("batch", **batch._asdict(), seconds=seconds)
        if self._trace_batch is not None:
            self._trace_batch(batch, seconds, tags)

    def batch_split(self, error: Exception) -> None:
        self._splits.inc()
        log.warning("a batch failed and is run again in halves", error=repr(error))

    def budget_lowered(self, max_batch_tokens: int) -> None:
        self._lowered.inc()
        self._budget.set(max_batch_tokens)
        log.warning("the device ran out of memory; the token budget is lowered", max_batch_tokens=max_batch_tokens)

    def worker_lost(self, error: Exception, workers_left: int) -> None:
        self._workers_lost.inc()
        log.error("a worker has died", error=str(error), workers_left=workers_left)

    def item_failed(self, error: Exception) -> None:
        self._item_failures.inc()
        log.error("the model failed on one input", error=repr(error))

    def batcher_stopped(self, error: BaseException) -> None:
        log.critical("the batcher has stopped, which is a defect", exc_info=error)
