"""The running service: every part built in order, wired, and ended in the reverse order."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal, TypeVar

import structlog

from app.batching import Batcher, ServiceLaw
from app.embedder import Embedder, EmbedOptions
from app.errors import ConvoyError, DeadlineExceeded, NotReady, ShuttingDown, StartFailed, WrongModel
from app.intake import Intake
from app.items import alike, prepare, run
from app.metrics import Metrics
from app.prompts import unknown_prompt
from app.scorer import ScoreOptions, Scorer
from app.settings import Settings
from app.tuning import policy_for
from app.vector_cache import VectorCache
from app.vectorizers import load_vectorizer
from app.vectorizers.base import ModelInfo, TextInput, Token, Vectorizer
from app.worker import Worker

log = structlog.get_logger(__name__)

T = TypeVar("T")

State = Literal["loading", "ready", "draining", "failed"]
PROBE_TIMEOUT_S = 2.0
RETRY_LOADING_S = 5.0
GC_THRESHOLDS = (10_000, 20, 50)
"""Requests leave next to no cycles behind; looking for them less often is worth 4% of the edge's throughput."""


class Service:
    """Owns the worker threads, the batcher and the embedder or scorer over it.

    The model loads in the background while the port is open already. `became_ready` is set when it has; `on_fatal` is
    told, once, why the service cannot go on.
    """

    def __init__(self, settings: Settings, metrics: Metrics, tag: Callable[[], object] = lambda: None) -> None:
        """`tag` is asked, in a request's own context, what `metrics` are to be told with its batches."""
        self._settings = settings
        self._metrics = metrics
        self._tag = tag
        self._workers = [Worker("worker-0")]
        self._tokenizer_thread = Worker("tokenizer")
        self._batcher: Batcher[TextInput, Any] | None = None
        self._vectorizer: Vectorizer[Any] | None = None
        self._one_aside = asyncio.Lock()
        self._model: Embedder | Scorer | None = None
        self._cache = VectorCache(settings.cache_mb) if settings.cache_mb else None
        self.state: State = "loading"
        self.became_ready = asyncio.Event()
        self.on_fatal: Callable[[str], None] = lambda reason: None
        metrics.watch(
            ready=lambda: self.state == "ready",
            queue_items=lambda lane: self._batcher.waiting_items(lane) if self._batcher else 0,
            queue_tokens=lambda lane: self._batcher.waiting_tokens(lane) if self._batcher else 0,
            cache_bytes=lambda: self._cache.n_bytes if self._cache else 0,
            busy_seconds=lambda: self._batcher.busy_seconds() if self._batcher else (),
            prediction_error=lambda: self._batcher.law.error if self._batcher else 0.0,
        )

    @asynccontextmanager
    async def running(self, _app: object = None) -> AsyncIterator[None]:
        """Start the threads and begin to load; end everything on the way out."""
        for thread in self._threads:
            await thread.__aenter__()
        life = asyncio.create_task(self._live(), name="service")
        try:
            yield
        finally:
            self.state = "draining"
            life.cancel()
            await asyncio.wait([life])
            await asyncio.gather(*[thread.__aexit__(None, None, None) for thread in self._threads])

    async def _live(self) -> None:
        """Load, serve, and say why it ended if it ends by itself."""
        try:
            vectorizers = await self._load()
            async with self._built(vectorizers) as batcher:
                self._become_ready(vectorizers[0])
                reason: Exception = await batcher.stopped()
                if self.state == "draining":
                    return
        except StartFailed as error:
            reason = error
        except Exception as error:
            log.critical("the service could not start, which is a defect", exc_info=error)
            reason = error
        self.state = "failed"
        self.on_fatal(str(reason))

    async def _load(self) -> list[Vectorizer[Any]]:
        """One vectorizer for each worker, each made on its worker's own thread; the first says how many there are."""
        log.info("loading the model", model=self._settings.model)
        vectorizers = [await self._workers[0].call(load_vectorizer, self._settings)]
        for i in range(1, vectorizers[0].info.workers):
            self._workers.append(Worker(f"worker-{i}"))
            await self._workers[i].__aenter__()
            vectorizers.append(await self._workers[i].call(vectorizers[0].for_worker, i))
        return vectorizers

    @asynccontextmanager
    async def _built(self, vectorizers: list[Vectorizer[Any]]) -> AsyncIterator[Batcher[TextInput, Any]]:
        """The batcher, and what answers requests over it."""
        settings, model = self._settings, vectorizers[0].info
        runs = [
            partial(worker.call, run, vectorizer) for worker, vectorizer in zip(self._workers, vectorizers, strict=True)
        ]
        batcher: Batcher[TextInput, Any] = Batcher(
            runs,
            policy=policy_for(settings, model),
            facts=self._metrics,
            devices=[id(vectorizer) for vectorizer in vectorizers],  # those that share one share its device
            law=ServiceLaw(model.batch_base_s, model.batch_token_s),
            host_s=lambda: vectorizers[0].host_s,
            side_by_side=model.side_by_side or None,
            prepare=partial(self._tokenizer_thread.call, prepare, vectorizers[0]),
            prepare_here=partial(prepare, vectorizers[0]),
            alike=alike,
            computed_tokens=vectorizers[0].computed_tokens,
        )
        async with batcher:
            self._batcher = batcher
            self._vectorizer = vectorizers[0]
            self._model = self._over(batcher, model)
            yield batcher

    def _over(self, batcher: Batcher[TextInput, Any], model: ModelInfo) -> Embedder | Scorer:
        """What answers requests for this kind of model; raises StartFailed where an option does not go with it."""
        settings = self._settings
        intake = Intake(
            model,
            batcher,
            max_inputs=settings.max_inputs,
            truncate=settings.truncate,
            request_timeout_ms=settings.request_timeout_ms,
            interactive_inputs=settings.interactive_inputs,
            tag=self._tag,
        )
        name = settings.default_prompt_name
        if name is not None and name not in model.prompts:
            raise StartFailed(f"--default-prompt-name {unknown_prompt(name, model.prompts)}.")
        if model.kind == "classification":
            return Scorer(intake)
        return Embedder(intake, default_prompt_name=name, cache=self._cache, report_cache=self._metrics.asked_cache)

    def _become_ready(self, vectorizer: Vectorizer[Any]) -> None:
        gc.collect()
        gc.freeze()  # what is loaded stays: the collector need not walk it again, which would stall requests
        gc.set_threshold(*GC_THRESHOLDS)

        model = vectorizer.info
        self._metrics.model_loaded(model)
        if self.state != "loading":
            return  # told to stop meanwhile
        self.state = "ready"
        log.info(
            "ready", model=model.name, device=model.device, dtype=model.dtype, dimension=model.dimension,
            max_batch_tokens=model.max_batch_tokens, workers=len(self._workers), forward=model.details.get("forward"),
        )  # fmt: skip
        if model.details.get("simulated"):
            log.warning("this is a simulated device: its vectors mean nothing", law=model.details["law"])
        self.became_ready.set()

    @property
    def _threads(self) -> list[Worker]:
        return [*self._workers, self._tokenizer_thread]

    @property
    def has_running_threads(self) -> bool:
        """Whether a thread could not be ended in time, because it is busy inside the model."""
        return any(thread.running for thread in self._threads)

    # --- what the edge asks -----------------------------------------------------------------------------------------

    def embedder(self) -> Embedder:
        """The embedder; raises NotReady or ShuttingDown where there is none to be had, WrongModel where the model
        does not embed."""
        if self.state == "ready":
            if isinstance(self._model, Embedder):
                return self._model
            if self._model is not None:
                raise WrongModel(f"{self._model.model.name} has a classification head: it does not embed.")
        raise self._not_now()

    def scorer(self) -> Scorer:
        """The scorer; raises NotReady or ShuttingDown where there is none to be had, WrongModel where the model has no
        classification head."""
        if self.state == "ready":
            if isinstance(self._model, Scorer):
                return self._model
            if self._model is not None:
                raise WrongModel(f"{self._model.model.name} has no classification head: it embeds, and does not score.")
        raise self._not_now()

    def model(self) -> ModelInfo | None:
        """The model, once it is loaded."""
        return self._model.model if self._model is not None else None

    def loaded_model(self) -> ModelInfo:
        """The model; raises NotReady where it is not loaded."""
        if self._model is None:
            raise self._not_now()
        return self._model.model

    async def tokens(self, texts: Sequence[str], special: bool) -> list[list[Token]]:
        """The tokens of each text; raises TokenizerFailed."""
        return await self._aside(lambda vectorizer: vectorizer.tokens(texts, special=special))

    async def decode(self, ids: Sequence[Sequence[int]], skip_special: bool) -> list[str]:
        """The text of each list of token ids; raises TokenizerFailed."""
        return await self._aside(lambda vectorizer: vectorizer.decode(ids, skip_special=skip_special))

    async def _aside(self, work: Callable[[Vectorizer[Any]], T]) -> T:
        """Do what the tokenizer alone can do on another thread than those that serve requests, one at a time; raises
        DeadlineExceeded where its turn does not come in time."""
        if self.state != "ready" or self._vectorizer is None:
            raise self._not_now()
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                async with self._one_aside:
                    return await asyncio.to_thread(work, self._vectorizer)
        except TimeoutError:
            raise DeadlineExceeded("The answer could not be ready within the deadline.") from None

    def check_health(self) -> None:
        """Raises NotReady where only a restart would help."""
        dead = [thread.name for thread in self._threads if not thread.alive]
        if dead:
            raise NotReady(f"These threads have ended: {', '.join(dead)}.")
        if self.state == "failed":
            raise self._not_now()

    async def check_ready(self) -> None:
        """Raises NotReady or ShuttingDown unless a request sent now would be served.

        Where the last items all failed on the device, one is tried, so that a device that recovers is noticed.
        """
        if self.state != "ready" or self._model is None:
            raise self._not_now()
        assert self._batcher is not None
        if not self._batcher.alive:
            raise NotReady("The batcher has stopped.")
        if self._batcher.failing:
            try:
                async with asyncio.timeout(PROBE_TIMEOUT_S):
                    if isinstance(self._model, Embedder):
                        await self._model.embed(["ready?"], EmbedOptions())
                    else:
                        await self._model.score([("ready?", None)], ScoreOptions())
            except (ConvoyError, TimeoutError) as error:
                raise NotReady(f"The model keeps failing: {str(error) or 'no answer in time'}") from error

    def _not_now(self) -> ConvoyError:
        if self.state == "draining":
            return ShuttingDown("The service is shutting down; send this to another replica.")
        if self.state == "failed":
            return NotReady("The service is out of order and must be restarted; its log says why.")
        return NotReady("The model is still loading; GET /ready says when it is there.", retry_after_s=RETRY_LOADING_S)

    def max_batch_tokens(self) -> int | None:
        """The token budget of a batch as it is now; None until the model is loaded."""
        return self._batcher.max_batch_tokens if self._batcher is not None else None

    @property
    def batcher(self) -> Batcher[TextInput, Any] | None:
        """The batcher, once the model is loaded."""
        return self._batcher

    async def drain(self) -> None:
        """Accept nothing new; return when what was accepted is answered, or when the time for it is over."""
        if self.state != "failed":
            self.state = "draining"
        if self._batcher is None:
            return
        try:
            async with asyncio.timeout(self._settings.drain_timeout_s):
                await self._batcher.drain()
        except TimeoutError:
            log.error("the drain ran out of time; requests are lost", drain_timeout_s=self._settings.drain_timeout_s)
            self._batcher.stop(ShuttingDown("The service had to shut down before this was answered; send it again."))
