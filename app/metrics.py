"""Every metric's name, and the only code that knows Prometheus."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Info, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from app.batching import LANES, LaneName, Outcome
from app.series import DeferredHistogram, PlainCounter
from app.vectorizers.base import ModelInfo

Observe = Callable[[float], None]

log = structlog.get_logger(__name__)

SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
POWERS_OF_TWO = tuple(float(2**i) for i in range(11))
TOKENS = tuple(float(2**i) for i in range(3, 18))
OUTCOMES: tuple[Outcome, ...] = ("answered", "shed", "expired", "abandoned", "failed")


class Metrics:
    """The service's counters; implements `batching.Facts` for the batcher that feeds the device.

    Every series exists at zero from the start. Only the event loop's thread may report.
    """

    def __init__(self, version: str) -> None:
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
        self._batch_seconds = self._seconds("convoy_batch_seconds", "Time a worker was busy with one batch.")
        self._batch_items = DeferredHistogram("convoy_batch_items", "Inputs in a batch.", POWERS_OF_TWO, registry)
        self._batch_tokens = DeferredHistogram("convoy_batch_tokens", "Tokens in a batch.", TOKENS, registry)
        self._splits = Counter("convoy_batch_splits", "Failed batches run again as two halves.", registry=registry)
        self._item_failures = Counter(
            "convoy_item_failures", "Inputs that failed alone on the device.", registry=registry
        )
        self._lowered = Counter("convoy_out_of_memory", "Times the device ran out of memory.", registry=registry)
        self._workers_lost = Counter("convoy_workers_lost", "Worker threads that have died.", registry=registry)
        self._budget = Gauge("convoy_max_batch_tokens", "The token budget in force.", registry=registry)
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
    ) -> None:
        """Read these states whenever metrics are asked for."""
        self._ready.set_function(ready)
        self._cache_bytes.set_function(cache_bytes)
        for lane in LANES:
            self._queue_items.labels(lane).set_function(partial(queue_items, lane))
            self._queue_tokens.labels(lane).set_function(partial(queue_tokens, lane))

    def model_loaded(self, model: ModelInfo) -> None:
        self._model.info({"name": model.name, "device": model.device, "dtype": model.dtype})
        self._budget.set(model.max_batch_tokens)

    # --- of requests ------------------------------------------------------------------------------------------------

    def request_ended(self, route: str, status: int, seconds: float) -> None:
        labels, observe = self._route(route, status)
        self._requests.counts[labels] += 1
        observe(seconds)

    def asked_cache(self, hits: int, misses: int) -> None:
        self._cache_hits.inc(hits)
        self._cache_misses.inc(misses)

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

    def batch_dispatched(self, items: int, tokens: int) -> None:
        self._batch_items.observe(items)
        self._batch_tokens.observe(tokens)

    def requests_boarded(self, lane: LaneName, prepared_s: Sequence[float], waited_s: Sequence[float]) -> None:
        self._tokenize_seconds.observe_all(prepared_s)
        self._waited[lane](waited_s)

    def batch_finished(self, items: int, tokens: int, left_items: int, seconds: float) -> None:
        self._batch_seconds.observe(seconds)
        log.debug("batch", items=items, tokens=tokens, left_items=left_items, seconds=seconds)

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
