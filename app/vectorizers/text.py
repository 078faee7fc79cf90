"""TextVectorizer: the callable that owns a sentence-transformers model and its device."""

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import structlog
import torch

from app.errors import OutOfMemory, StartFailed, WorkerDied
from app.vectorizers.base import Matrix, ModelInfo, TextInput, require_finite
from app.vectorizers.cores import Cores, compare_workers, workers_that_pay
from app.vectorizers.devices import card_names, choose_device, describe_device, granted_cores
from app.vectorizers.dtypes import choose_dtype
from app.vectorizers.forward import Forward
from app.vectorizers.forward.cuda import SLOTS, CudaForward, has_ragged_kernel
from app.vectorizers.forward.families import CannotPack, check_can_pack
from app.vectorizers.forward.packed import PackedForward, PackedModel
from app.vectorizers.forward.padded import PaddedForward
from app.vectorizers.loading import LoadedModel
from app.vectorizers.sources import ModelSource
from app.vectorizers.tokenizer import TokenIds
from app.vectorizers.warmup import LIMIT_S, TEXT_TOKENS, Budget, Thoroughness, describe_steps, sweep

log = structlog.get_logger(__name__)

DEFAULT_BATCH_TOKENS = 16_384
"""Most tokens in one forward until the warm-up has measured better, or where it may not."""
DEFAULT_BUDGET = {"cpu": 1024}
"""The token budget without a warm-up, by kind of device; elsewhere `DEFAULT_BATCH_TOKENS`."""
MOST_RECORDED_TOKENS = 2048
"""Up to here a card's forward is shorter than the time its launches take one by one."""
QUERY_TOKENS = 16
"""Length of the texts with which counts of workers are compared: a query's."""
CPU_OUT_OF_MEMORY = "DefaultCPUAllocator"
"""In what torch says when the host has no memory left; there is no class of its own for that."""
CHECK_TEXTS = (
    "a",
    "Where is my card?",
    "Ünïcödé and 日本語, 12,345.67 €\n" * 3,
    "one two three four five six seven " * 9,
    "eight nine ten " * 70,
)
"""Ragged, and one longer than the windows of those models that look at their neighbours alone."""
CHECK_COSINE = 0.99999
CHECK_COSINE_HALF = 0.995


class TextVectorizer:
    """Embeds texts as `SentenceTransformer.encode` does, in batches that fit the device.

    The constructor does all that is costly: it loads weights, chooses the way through the model and checks its vectors
    against sentence-transformers' own, measures the token budget and how many workers pay. `tokenize` may run beside
    anything; so may the calls of as many workers as `info.workers` says, each of the vectorizer that `for_worker` gave
    it, from its own thread.
    """

    def __init__(
        self,
        source: ModelSource,
        *,
        name: str,
        device: str = "auto",
        dtype: str = "auto",
        card: int = 0,
        workers: int = 1,
        warmup: Thoroughness = "full",
        max_batch_tokens: int = 0,
        max_batch_items: int = 512,
        cuda_visible_devices: str | None = None,
    ) -> None:
        """`workers` are threads on a CPU and cards on CUDA, 0 for as many as pay; this object is for the `card`-th of
        the cards."""
        self._for_card = partial(
            TextVectorizer, source, name=name, device=device, dtype=dtype, workers=workers, warmup=warmup,
            max_batch_items=max_batch_items, cuda_visible_devices=cuda_visible_devices,
        )  # fmt: skip
        self._cards = {card: self}
        self._device = choose_device(device, card, cuda_visible_devices)
        self._cores = Cores(granted_cores())
        with self._cores:
            self._dtype = choose_dtype(dtype, self._device, source)
            loaded = LoadedModel(source, self._device, self._dtype)
            self._tokenizer = loaded.tokenizer
            self._dimension = loaded.dimension
            self._ends_normalized = loaded.ends_normalized
            self._default_prompt = loaded.default_prompt
            self._max_batch_tokens = max_batch_tokens or DEFAULT_BATCH_TOKENS
            self._forward = self._choose_forward(loaded, source)
        budget = self._warm_up(warmup, max_batch_items)
        self._max_batch_tokens = max_batch_tokens or budget.max_batch_tokens
        if isinstance(self._forward, PaddedForward) and budget.token_s:
            self._forward.fit(self._max_batch_tokens, budget.base_s / budget.token_s)
        self._slots = SLOTS if isinstance(self._forward, CudaForward) else 1
        self._single_card = ":" in device
        n_workers, details = self._count_workers(workers, warmup)
        self._info = ModelInfo(
            name=name,
            dimension=self._dimension,
            max_input_tokens=self._tokenizer.max_tokens,
            vocabulary_size=self._tokenizer.vocabulary_size,
            device=describe_device(self._device, cuda_visible_devices),
            dtype=str(self._dtype).removeprefix("torch."),
            max_batch_tokens=self._max_batch_tokens,
            workers=n_workers,
            prompts=loaded.prompts,
            default_prompt_name=loaded.default_prompt_name,
            warmup=tuple(budget.steps),
            details={
                "architecture": loaded.architecture,
                "modules": loaded.module_names,
                "forward": self._forward.name,
                "forward_base_ms": round(budget.base_s * 1e3, 4),
                "forward_ms_per_1000_tokens": round(budget.token_s * 1e6, 4),
                **details,
            },
        )

    @property
    def info(self) -> ModelInfo:
        return self._info

    def tokenize(self, inputs: Sequence[TextInput]) -> list[TokenIds]:
        return self._tokenizer(inputs)

    def __call__(self, inputs: Sequence[str] | Sequence[TokenIds], *, normalize: bool | None = None) -> Matrix:
        """More than the token budget runs in parts, each within it or one text."""
        texts = self._encode(inputs)
        if not texts:
            return np.empty((0, self._dimension), dtype=np.float32)
        try:
            with torch.inference_mode(), self._cores:
                rows = [self._forward(part) for part in parts(texts, self._max_batch_tokens)]
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise OutOfMemory(str(error)) from error
        except torch.AcceleratorError as error:
            raise WorkerDied(f"The device can no longer be used: {error}") from error
        except RuntimeError as error:
            if CPU_OUT_OF_MEMORY in str(error):
                raise OutOfMemory(str(error)) from error
            raise
        matrix = rows[0] if len(rows) == 1 else np.concatenate(rows)
        if normalize if normalize is not None else self._ends_normalized:
            matrix = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), np.float32(1e-12))
        return require_finite(matrix)

    def for_worker(self, index: int) -> "TextVectorizer":
        """On CUDA the copy on the worker's card, which may serve several workers; elsewhere the same weights."""
        if self._device.type == "cuda":
            card = min(self._cards) + index // self._slots
            if card not in self._cards:
                self._cards[card] = self._for_card(card=card, max_batch_tokens=self._max_batch_tokens)
            return self._cards[card]
        self(list(CHECK_TEXTS))  # this thread's own first call pays for its own thread team
        return self

    def _encode(self, inputs: Sequence[str] | Sequence[TokenIds]) -> list[TokenIds]:
        """Texts are prefixed with the model's default prompt, as SentenceTransformer.encode does."""
        texts = [TextInput(one, self._default_prompt) for one in inputs if isinstance(one, str)]
        return self.tokenize(texts) if texts else [one for one in inputs if isinstance(one, TokenIds)]

    # --- loading ----------------------------------------------------------------------------------------------------

    def _choose_forward(self, loaded: LoadedModel, source: ModelSource) -> Forward:
        """The packed forward, or else the padded one; either only if its vectors are sentence-transformers' own."""
        expected = loaded.encode(CHECK_TEXTS)
        texts = self._encode(CHECK_TEXTS)
        try:
            check_can_pack(loaded.model)
        except CannotPack as refusal:
            reason = str(refusal)
        else:
            try:
                return self._packed(PackedModel(loaded.model), texts, expected)
            except CannotPack as failure:
                reason = str(failure)
            loaded = LoadedModel(source, self._device, self._dtype)  # packing has changed the other
        log.info("texts are padded, since this model cannot be packed", reason=reason)
        padded = PaddedForward(loaded.model, self._tokenizer, max_tokens=self._max_batch_tokens)
        cosine = self._likeness(padded, texts, expected)
        if cosine < self._least_cosine:
            raise StartFailed(
                "The model's vectors do not come out as sentence-transformers computes them "
                f"(cosine {cosine:.5f}, at least {self._least_cosine} expected); Convoy does not serve it."
            )
        return padded

    def _packed(self, model: PackedModel, texts: Sequence[TokenIds], expected: Matrix) -> Forward:
        """The packed forward for this device; raises CannotPack where it fails or its rows are not those expected."""
        forward: Forward
        if self._device.type == "cuda":
            forward = CudaForward(model, self._device, ragged=has_ragged_kernel(self._device, self._dtype))
        else:
            forward = PackedForward(model)
        try:
            cosine = self._likeness(forward, texts, expected)
        except (RuntimeError, TypeError, AttributeError, KeyError) as error:  # transformers' modules have changed
            raise CannotPack(f"its packed forward failed: {error!r}") from error
        if cosine < self._least_cosine:
            raise CannotPack(f"packed vectors differ from sentence-transformers' own (cosine {cosine:.5f})")
        return forward

    @property
    def _least_cosine(self) -> float:
        return CHECK_COSINE if self._dtype == torch.float32 else CHECK_COSINE_HALF

    @staticmethod
    def _likeness(forward: Forward, texts: Sequence[TokenIds], expected: Matrix) -> float:
        """The least cosine between a forward's rows and the unit vectors expected; 0 where one is not finite."""
        with torch.inference_mode():
            rows = forward(texts)
        cosines = (rows * expected).sum(axis=1) / np.linalg.norm(rows, axis=1)
        return float(np.nan_to_num(cosines).min())

    # --- warm-up ----------------------------------------------------------------------------------------------------

    def _warm_up(self, thoroughness: Thoroughness, max_batch_items: int) -> Budget:
        """Pay every first-call cost before the first request, and measure how long forwards take."""
        most = self._tokenizer.max_tokens
        ids = random.Random(0).choices(range(self._tokenizer.vocabulary_size), k=most)

        def run(items: int, tokens_each: int) -> None:
            try:
                self([TokenIds(ids[:tokens_each])] * items)
            except OutOfMemory as error:
                raise MemoryError from error

        if thoroughness == "off":
            run(1, min(TEXT_TOKENS, most))
            return Budget(DEFAULT_BUDGET.get(self._device.type, DEFAULT_BATCH_TOKENS), 0.0, 0.0, ())
        if isinstance(self._forward, CudaForward):
            with torch.inference_mode():
                self._forward.record(MOST_RECORDED_TOKENS)
        budget = sweep(
            run, text_tokens=min(TEXT_TOKENS, most), max_items=max_batch_items, time_limit_s=LIMIT_S[thoroughness]
        )
        log.info("measured how long forwards take", forward_ms=describe_steps(budget.steps))
        return budget

    def _count_workers(self, asked: int, thoroughness: Thoroughness) -> tuple[int, dict[str, Any]]:
        """How many workers the service should run, and what was found on the way."""
        if self._device.type == "cuda":
            cards = asked or (1 if self._single_card else len(card_names()))
            return cards * self._slots, {"peak_memory_bytes": torch.cuda.max_memory_allocated(self._device)}
        if asked or self._device.type != "cpu" or thoroughness == "off":
            return asked or 1, {}
        texts = [TokenIds(list(range(QUERY_TOKENS)))] * max(1, self._max_batch_tokens // QUERY_TOKENS)
        measured = compare_workers(lambda: self(texts), self._cores.count)
        found = {str(one.workers): round(one.batches_per_s * len(texts), 1) for one in measured}
        log.info("measured how many workers pay", texts_per_s_by_workers=found)
        return workers_that_pay(measured), {"texts_per_s_by_workers": found}


def parts(texts: Sequence[TokenIds], max_tokens: int) -> Iterator[Sequence[TokenIds]]:
    """Split texts, in their order, so that each part holds at most `max_tokens` or is one text."""
    start = tokens = 0
    for end, text in enumerate(texts):
        if end > start and tokens + text.n_tokens > max_tokens:
            yield texts[start:end]
            start, tokens = end, 0
        tokens += text.n_tokens
    yield texts[start:]
