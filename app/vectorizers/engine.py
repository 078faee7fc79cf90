"""Engine: what every vectorizer with a model of its own does with it, whatever the rows are."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import structlog
import torch

from app.errors import OutOfMemory, WorkerDied
from app.vectorizers.base import Matrix, ModelInfo, TextInput, Token
from app.vectorizers.cores import MEASURE_S, Cores, compare_workers, workers_that_pay
from app.vectorizers.devices import card_names, card_uuids, choose_device, describe_device, granted_cores
from app.vectorizers.dtypes import name_of
from app.vectorizers.forward import Forward
from app.vectorizers.forward.cuda import SLOTS, CudaForward
from app.vectorizers.forward.padded import PaddedForward
from app.vectorizers.loading import CHECK_TEXTS, Loaded
from app.vectorizers.parts import parts
from app.vectorizers.sources import ModelSource
from app.vectorizers.tokenizer import TokenIds
from app.vectorizers.warmup import LAST_TOKENS, LIMIT_S, TEXT_TOKENS, Budget, Thoroughness, describe_steps, sweep

log = structlog.get_logger(__name__)
T = TypeVar("T")

DEFAULT_BUDGET = {"cpu": 1024, "cuda": 16_384}
"""The token budget without a warm-up, by kind of device."""
SPARE = 1
"""So many workers there are on a CPU besides those that pay: a query need not wait for a bulk batch."""
MOST_RECORDED_TOKENS = 2048
"""Up to here a card's forward is taken to be bound by its launches; to be measured on one."""
QUERY_TOKENS = 16
"""Length of the texts with which counts of workers are compared: a query's."""
OUT_OF_MEMORY = ("DefaultCPUAllocator", "CUBLAS_STATUS_ALLOC_FAILED", "out of memory")
"""In what torch says when there is no memory left and it has no class of its own for that: on the host, in cuBLAS, for
pinned memory."""


class Engine(ABC):
    """Owns a model and its device, and runs forwards that fit it.

    The constructor does all that is costly: it loads weights, chooses the way through the model and checks its rows
    against sentence-transformers' own, measures the token budget and how many workers pay. `tokenize` may run beside
    anything; so may the calls of as many workers as `info.workers` says, each of the vectorizer that `for_worker` gave
    it, from its own thread.
    """

    kind: Literal["embedding", "classification"]

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
            type(self), source, name=name, device=device, dtype=dtype, workers=workers, warmup="quick",
            max_batch_items=max_batch_items, cuda_visible_devices=cuda_visible_devices,
        )  # fmt: skip
        self._cards: dict[int, Engine] = {card: self}
        self._device = choose_device(device, card, cuda_visible_devices)
        self._cores = Cores(granted_cores())
        with self._cores:
            loaded, self._forward = self._load(source, dtype)
            self._tokenizer = loaded.tokenizer
            self._dimension = loaded.dimension
            self._default_prompt = loaded.default_prompt
            self._max_batch_tokens = LAST_TOKENS  # until it is measured
        budget = self._warm_up(warmup, max_batch_items)
        self._max_batch_tokens = max_batch_tokens or budget.max_batch_tokens
        if isinstance(self._forward, PaddedForward) and budget.token_s:
            self._forward.fit(self._max_batch_tokens, budget.base_s / budget.token_s)
        self._slots = SLOTS if isinstance(self._forward, CudaForward) else 1
        self._single_card = ":" in device
        n_workers, side_by_side, found = self._count_workers(workers, budget, max_batch_items)
        self._info = ModelInfo(
            name=name,
            kind=self.kind,
            labels=loaded.labels,
            dimension=self._dimension,
            max_input_tokens=self._tokenizer.max_tokens,
            vocabulary_size=self._tokenizer.vocabulary_size,
            device=describe_device(self._device, cuda_visible_devices),
            dtype=name_of(loaded.dtype),
            max_batch_tokens=self._max_batch_tokens,
            workers=n_workers,
            side_by_side=side_by_side,
            batch_base_s=budget.base_s,
            batch_token_s=budget.token_s,
            ceiling_tokens_per_s=self._ceiling_tokens_per_s(budget, n_workers // self._slots, found),
            prompts=loaded.prompts,
            default_prompt_name=loaded.default_prompt_name,
            warmup=tuple(budget.steps),
            details={
                "architecture": loaded.architecture,
                **loaded.details,
                "parameters": loaded.n_parameters,
                "forward": self._forward.name,
                **found,
            },
        )

    @abstractmethod
    def _load(self, source: ModelSource, dtype: str) -> tuple[Loaded, Forward]:
        """The model, and the way through it; raises StartFailed."""

    @abstractmethod
    def __call__(self, inputs: Sequence[str] | Sequence[TokenIds], *, normalize: bool | None = None) -> Matrix:
        """Rows, float32 of shape (n, dimension). More than the token budget runs in parts, each within it or one
        text."""

    @abstractmethod
    def token_vectors(self, encodings: Sequence[TokenIds]) -> list[Matrix]:
        """For each encoding float32 of shape (n_tokens, width), in parts as a call's."""

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def host_s(self) -> float:
        return self._forward.host_s if isinstance(self._forward, CudaForward) else 0.0

    def computed_tokens(self, sizes: Sequence[int]) -> int:
        return self._forward.computed_tokens(sizes)

    def tokenize(self, inputs: Sequence[TextInput]) -> list[TokenIds]:
        return self._tokenizer(inputs)

    def tokens(self, texts: Sequence[str], *, special: bool) -> list[list[Token]]:
        return self._tokenizer.tokens(texts, special=special)

    def decode(self, ids: Sequence[Sequence[int]], *, skip_special: bool) -> list[str]:
        return self._tokenizer.decode(ids, skip_special=skip_special)

    def for_worker(self, index: int) -> "Engine":
        """On CUDA the copy on the worker's card, which may serve several workers; elsewhere the same weights."""
        if self._device.type == "cuda":
            card = min(self._cards) + index // self._slots
            if card not in self._cards:
                self._cards[card] = self._for_card(card=card, max_batch_tokens=self._max_batch_tokens)
            return self._cards[card]
        self(list(CHECK_TEXTS))  # this thread's own first call pays for its own thread team
        return self

    def _encode(self, inputs: Sequence[str] | Sequence[TokenIds]) -> list[TokenIds]:
        """Texts are prefixed with the model's default prompt, as sentence-transformers does."""
        texts = [TextInput(one, self._default_prompt) for one in inputs if isinstance(one, str)]
        return self.tokenize(texts) if texts else [one for one in inputs if isinstance(one, TokenIds)]

    def _rows(self, inputs: Sequence[str] | Sequence[TokenIds]) -> Matrix:
        """The forward's rows, in the order of the inputs, not normalised."""
        texts = self._encode(inputs)
        if not texts:
            return np.empty((0, self._dimension), dtype=np.float32)
        rows = self._run(self._forward, texts)
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def _run(self, forward: Callable[[Sequence[TokenIds]], T], texts: Sequence[TokenIds]) -> list[T]:
        """What `forward` makes of the texts, in parts that fit the budget; its failures in the project's words."""
        try:
            with torch.inference_mode(), self._cores:
                return [forward(part) for part in parts(texts, self._max_batch_tokens)]
        except RuntimeError as error:
            if not any(sign in str(error) for sign in OUT_OF_MEMORY) and not isinstance(error, torch.OutOfMemoryError):
                if isinstance(error, torch.AcceleratorError):
                    raise WorkerDied(f"The device can no longer be used: {error}") from error
                raise
            problem = str(error)
        torch.cuda.empty_cache()  # only here has the error let go of the tensors of the forward that failed
        raise OutOfMemory(problem)

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
            return Budget(DEFAULT_BUDGET.get(self._device.type, 1024), 0.0, 0.0, ())
        if isinstance(self._forward, CudaForward):
            with torch.inference_mode():
                self._forward.record(MOST_RECORDED_TOKENS, most)
        budget = sweep(
            run, text_tokens=min(TEXT_TOKENS, most), max_items=max_batch_items, time_limit_s=LIMIT_S[thoroughness]
        )
        log.info("measured how long forwards take", forward_ms=describe_steps(budget.steps))
        return budget

    def _ceiling_tokens_per_s(self, budget: Budget, n_devices: int, found: dict[str, Any]) -> float:
        """The best that was measured: of one worker on its device, times the devices; or of several on one CPU."""
        best = max([step.tokens / step.seconds for step in budget.steps], default=0.0)
        if self._device.type == "cuda":
            return best * n_devices
        texts_per_s = max(found.get("texts_per_s_by_workers", {}).values(), default=0.0)
        return max(best, texts_per_s * min(QUERY_TOKENS, self._tokenizer.max_tokens))

    def _count_workers(self, asked: int, budget: Budget, max_batch_items: int) -> tuple[int, int, dict[str, Any]]:
        """How many workers the service should run, how many of them at a time, and what was found on the way."""
        if self._device.type == "cuda":
            cards = asked or (1 if self._single_card else len(card_names()))
            peak = torch.cuda.max_memory_allocated(self._device)
            uuids = card_uuids(self._device.index or 0, cards)
            return cards * self._slots, 0, {"peak_memory_bytes": peak, "card_uuids": uuids}
        if asked or self._device.type != "cpu" or not budget.steps:
            return asked or 1, 0, {}
        each = min(QUERY_TOKENS, self._tokenizer.max_tokens)
        tokens = min(self._max_batch_tokens, int(MEASURE_S / budget.token_s))
        texts = [TokenIds([0] * each)] * min(max_batch_items, max(1, tokens // each))
        try:
            measured = compare_workers(lambda: self(texts), self._cores.count)
        except OutOfMemory:
            return 1, 0, {}
        found = {str(one.workers): round(one.batches_per_s * len(texts), 1) for one in measured}
        log.info("measured how many workers pay", texts_per_s_by_workers=found)
        pay = workers_that_pay(measured)
        return pay + SPARE, pay, {"texts_per_s_by_workers": found}
