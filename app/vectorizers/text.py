"""TextVectorizer: the callable that owns a sentence-transformers model and its device."""

import random
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers.utils.logging import disable_progress_bar

from app.errors import OutOfMemory, StartFailed, WorkerDied
from app.vectorizers.base import Matrix, ModelInfo, TextInput, require_finite
from app.vectorizers.devices import choose_device, choose_dtype, describe_device, granted_cores
from app.vectorizers.padding import length_buckets, pad
from app.vectorizers.sources import ModelSource
from app.vectorizers.tokenizer import TextTokenizer, TokenIds
from app.vectorizers.warmup import TEXT_TOKENS, Budget, sweep

WARMUP_LIMIT_S = 4.0
DEFAULT_BATCH_TOKENS = 16_384
"""Most tokens in one forward until the warm-up has measured better."""
CHECK_TEXTS = (
    "a",
    "Where is my card?",
    "Ünïcödé and 日本語, 12,345.67 €\n" * 3,
    "one two three four five six seven " * 9,
)
LEAST_FORWARD_COST_TOKENS = 32
"""No forward is so cheap that padding this little is worth another; a measurement that says so was disturbed."""
CHECK_COSINE = 0.99999
CHECK_COSINE_HALF = 0.995


class TextVectorizer:
    """Embeds texts as `SentenceTransformer.encode` does, in batches that fit the device.

    The constructor does all that is costly: it loads weights in eval mode, copies the tokenizer, checks its own
    vectors against sentence-transformers', measures the token budget. Use an object from the thread that made it;
    `tokenize` alone may run elsewhere.
    """

    def __init__(
        self,
        source: ModelSource,
        *,
        name: str,
        device: str = "auto",
        dtype: str = "auto",
        worker: int = 0,
        workers: int = 1,
        max_batch_tokens: int = 0,
        max_batch_items: int = 512,
        cuda_visible_devices: str | None = None,
    ) -> None:
        self._for_card = partial(
            TextVectorizer, source, name=name, device=device, dtype=dtype, workers=workers,
            max_batch_items=max_batch_items, cuda_visible_devices=cuda_visible_devices,
        )  # fmt: skip
        self._device = choose_device(device, worker, cuda_visible_devices)
        self._dtype = choose_dtype(dtype, self._device)
        self._threads = max(1, granted_cores() // workers)
        self._use_threads()
        self._load_model(source)
        self._tokenizer = TextTokenizer(
            self._reference.tokenizer,
            max_tokens=self._reference.max_seq_length,
            embedded_tokens=self._transformer.auto_model.get_input_embeddings().weight.shape[0],
            counts_prompt=self._drops_prompt,
        )
        self._max_batch_tokens = max_batch_tokens or DEFAULT_BATCH_TOKENS
        self._forward_cost_tokens = 0.0
        self._check_vectors()
        budget = self._warm_up(max_batch_items)
        self._max_batch_tokens = max_batch_tokens or budget.max_batch_tokens
        self._forward_cost_tokens = max(LEAST_FORWARD_COST_TOKENS, budget.base_s / budget.token_s)
        self._info = self._describe(name, budget, describe_device(self._device, cuda_visible_devices))

    @property
    def info(self) -> ModelInfo:
        return self._info

    def tokenize(self, inputs: Sequence[TextInput]) -> list[TokenIds]:
        return self._tokenizer(inputs)

    def __call__(self, inputs: Sequence[str] | Sequence[TokenIds], *, normalize: bool | None = None) -> Matrix:
        encodings = self._encode(inputs)
        if not encodings:
            return np.empty((0, self._dimension), dtype=np.float32)
        try:
            with torch.inference_mode():
                rows = self._forward(encodings)
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise OutOfMemory(str(error)) from error
        except torch.AcceleratorError as error:
            raise WorkerDied(f"The device can no longer be used: {error}") from error
        if normalize if normalize is not None else self._ends_normalized:
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
        return require_finite(rows)

    def for_worker(self, index: int) -> "TextVectorizer":
        """On CUDA a replica on the next card; elsewhere the same weights, with this thread's share of the cores."""
        if self._device.type == "cuda":
            return self._for_card(worker=index, max_batch_tokens=self._max_batch_tokens)
        self._use_threads()
        self(list(CHECK_TEXTS))  # this thread's own first call pays for its own thread team
        return self

    # --- loading ----------------------------------------------------------------------------------------------------

    def _use_threads(self) -> None:
        if self._device.type == "cpu":
            torch.set_num_threads(self._threads)

    def _load_model(self, source: ModelSource) -> None:
        if not sys.stderr.isatty():
            disable_progress_bar()  # type: ignore[no-untyped-call]  # a bar is for people; a log file gets lines
        try:
            model = SentenceTransformer(
                source.location,
                device=str(self._device),
                revision=source.revision,
                local_files_only=source.local,
                trust_remote_code=False,
                model_kwargs={"dtype": self._dtype},
            )
        except (OSError, ValueError, ImportError) as error:
            raise StartFailed(f"The model {source.location} cannot be loaded: {error}") from error
        if not isinstance(model[0], Transformer) or "text" not in model.modalities:
            raise StartFailed(f"The model {source.location} does not begin with a transformer that reads text.")
        model.eval()
        self._reference = model
        self._transformer = model[0]
        self._ends_normalized = isinstance(model[-1], Normalize)
        modules = list(model)[:-1] if self._ends_normalized else list(model)
        self._model = torch.nn.Sequential(*modules)
        self._model.eval()
        self._drops_prompt = any(isinstance(module, Pooling) and not module.include_prompt for module in modules)
        self._dimension = int(model.get_embedding_dimension() or 0)

    def _check_vectors(self) -> None:
        """Refuse to serve vectors that differ from sentence-transformers' own."""
        texts = list(CHECK_TEXTS)
        expected = self._reference.encode(
            texts, convert_to_numpy=True, normalize_embeddings=True, show_progress_bar=False
        )
        cosines = (self(texts, normalize=True) * expected.astype(np.float32)).sum(axis=1)
        least = CHECK_COSINE if self._dtype == torch.float32 else CHECK_COSINE_HALF
        if not (cosines >= least).all():
            raise StartFailed(
                "The model's vectors do not come out as sentence-transformers computes them "
                f"(cosine {cosines.min():.5f}, at least {least} expected); Convoy does not serve it."
            )

    def _warm_up(self, max_batch_items: int) -> Budget:
        """Measure forwards of growing size; also pays every first-call cost before the first request."""
        ids = random.Random(0).choices(range(self._tokenizer.vocabulary_size), k=self._tokenizer.max_tokens)
        each = min(TEXT_TOKENS, self._tokenizer.max_tokens)

        def run(items: int, tokens_each: int) -> None:
            try:
                self([TokenIds(ids[:tokens_each])] * items)
            except OutOfMemory as error:
                raise MemoryError from error

        return sweep(run, text_tokens=each, max_items=max_batch_items, time_limit_s=WARMUP_LIMIT_S)

    def _describe(self, name: str, budget: Budget, device: str) -> ModelInfo:
        model = self._reference
        return ModelInfo(
            name=name,
            dimension=self._dimension,
            max_input_tokens=self._tokenizer.max_tokens,
            vocabulary_size=self._tokenizer.vocabulary_size,
            device=device,
            dtype=str(self._dtype).removeprefix("torch."),
            max_batch_tokens=self._max_batch_tokens,
            prompts={name: prompt or "" for name, prompt in model.prompts.items()},
            default_prompt_name=model.default_prompt_name,
            warmup=tuple(budget.steps),
            details={
                "architecture": type(self._transformer.auto_model).__name__,
                "modules": [type(module).__name__ for module in model],
                "forward": "padded, sorted by length",
                "threads": self._threads if self._device.type == "cpu" else None,
                "forward_base_ms": round(budget.base_s * 1e3, 4),
                "forward_ms_per_1000_tokens": round(budget.token_s * 1e6, 4),
            },
        )

    # --- the forward ------------------------------------------------------------------------------------------------

    def _encode(self, inputs: Sequence[str] | Sequence[TokenIds]) -> list[TokenIds]:
        """Texts are prefixed with the model's default prompt, as SentenceTransformer.encode does."""
        prompt = self._reference.prompts.get(self._reference.default_prompt_name or "") or ""
        texts = [TextInput(one, prompt) for one in inputs if isinstance(one, str)]
        return self.tokenize(texts) if texts else [one for one in inputs if isinstance(one, TokenIds)]

    def _forward(self, encodings: Sequence[TokenIds]) -> Matrix:
        """Raw pooled rows, float32, in the order of the encodings."""
        rows = np.empty((len(encodings), self._dimension), dtype=np.float32)
        for bucket in self._buckets(encodings):
            ids, mask = pad([encodings[i].ids for i in bucket], self._tokenizer.pad_id, left=self._tokenizer.pad_left)
            features: dict[str, Any] = {"input_ids": torch.from_numpy(ids).to(self._device)}
            if mask is not None:
                features["attention_mask"] = torch.from_numpy(mask).to(self._device)
            if prompt_tokens := encodings[bucket[0]].prompt_tokens:
                features["prompt_length"] = prompt_tokens
            rows[bucket] = self._model(features)["sentence_embedding"].float().cpu().numpy()
        return rows

    def _buckets(self, encodings: Sequence[TokenIds]) -> list[list[int]]:
        """Positions of the texts of each forward: of like length, and of one prompt length."""
        groups: dict[int, list[int]] = {}
        for position, one in enumerate(encodings):
            groups.setdefault(one.prompt_tokens, []).append(position)
        return [
            [group[i] for i in bucket]
            for group in groups.values()
            for bucket in length_buckets(
                [encodings[i].n_tokens for i in group], self._max_batch_tokens, self._forward_cost_tokens
            )
        ]
