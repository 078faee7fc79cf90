"""Loading: an embedding model's files, by sentence-transformers, into its modules and its tokenizer."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers.utils.logging import disable_progress_bar

from app.errors import StartFailed
from app.vectorizers.base import Matrix, TextInput
from app.vectorizers.forward.families import check_can_pack, longest_independent_text, usable_positions
from app.vectorizers.forward.packed import PackedModel
from app.vectorizers.forward.padded import PaddedForward
from app.vectorizers.sources import ModelSource
from app.vectorizers.tokenizer import TextTokenizer, TokenIds
from app.vectorizers.warmup import LAST_TOKENS

M = TypeVar("M", SentenceTransformer, CrossEncoder)
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
LENGTH_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.02, torch.bfloat16: 0.05}
"""How far the length of a vector may be from sentence-transformers' own, relative to it."""


class Loaded:
    """A model of sentence-transformers' in eval mode, and what there is to know of it without running it."""

    model: Any
    tokenizer: TextTokenizer
    dimension: int
    labels: Sequence[str] = ()

    def __init__(self, source: ModelSource, device: torch.device, dtype: torch.dtype, model: Any) -> None:
        first = model[0]
        self.source = source
        self.device = device
        self.dtype = dtype
        self.model = model
        self.architecture = type(first.auto_model).__name__
        self.n_parameters = sum(one.numel() for one in model.parameters())
        self.prompts = {name: prompt or "" for name, prompt in model.prompts.items()}
        self.default_prompt_name: str | None = model.default_prompt_name

    @property
    def default_prompt(self) -> str:
        """What sentence-transformers puts before each text."""
        return self.prompts.get(self.default_prompt_name or "", "")

    @property
    def details(self) -> Mapping[str, Any]:
        """What `/info` says of this kind of model."""
        raise NotImplementedError

    def _take_tokenizer(self, tokenizer: TextTokenizer) -> None:
        """Raises StartFailed where a text would change the rows of others."""
        self.tokenizer = tokenizer
        self.model.max_seq_length = tokenizer.max_tokens  # sentence-transformers itself does not look at the positions
        independent = longest_independent_text(self.model[0].auto_model.config)
        if independent is not None and tokenizer.max_tokens > independent:
            raise StartFailed(
                f"The model {self.source.location} has rotary positions that change for all texts of a batch when one "
                f"exceeds {independent} tokens, so that a vector would depend on its company. Set max_seq_length in "
                f"its sentence_bert_config.json to {independent} (now {tokenizer.max_tokens})."
            )


class LoadedModel(Loaded):
    """A model that turns texts into vectors."""

    model: SentenceTransformer

    def __init__(self, source: ModelSource, device: torch.device, dtype: torch.dtype) -> None:
        """Raises StartFailed with a sentence that says what to change."""
        model = load(SentenceTransformer, source, device, dtype)
        super().__init__(source, device, dtype, model)
        first: Any = model[0]
        self.dimension = int(model.get_embedding_dimension() or 0)
        self.ends_normalized = isinstance(model[-1], Normalize)
        self._take_tokenizer(
            TextTokenizer(
                model.tokenizer,
                max_tokens=model.max_seq_length,
                positions=usable_positions(first.auto_model),
                embedded_tokens=first.auto_model.get_input_embeddings().weight.shape[0],
                counts_prompt=any(isinstance(module, Pooling) and not module.include_prompt for module in model),
            )
        )

    @property
    def details(self) -> Mapping[str, Any]:
        """What `/info` says of this kind of model."""
        poolings = [module.pooling_mode for module in self.model if isinstance(module, Pooling)]
        return {
            "modules": [type(module).__name__ for module in self.model],
            "pooling": _pooling_name(poolings[0]) if poolings else None,
        }

    def tokenize(self, texts: Sequence[str]) -> list[TokenIds]:
        """As SentenceTransformer.encode does: with the default prompt."""
        return self.tokenizer([TextInput(text, self.default_prompt) for text in texts])

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Vectors as sentence-transformers itself computes them, float32 of shape (n, dimension).

        Raises StartFailed where it cannot.
        """
        try:
            rows: Any = self.model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            raise StartFailed(f"sentence-transformers cannot run the model: {error}") from error
        vectors: Matrix = rows.astype(np.float32)
        return vectors

    # --- what choosing the way through it needs ---------------------------------------------------------------------

    def again(self) -> "LoadedModel":
        return LoadedModel(self.source, self.device, self.dtype)

    def check_can_pack(self) -> None:
        check_can_pack(self.model)

    def packed(self) -> PackedModel:
        return PackedModel(self.model)

    def padded(self) -> PaddedForward:
        return PaddedForward(self.model, self.tokenizer, max_tokens=LAST_TOKENS)

    def check_inputs(self) -> list[TokenIds]:
        return self.tokenize(CHECK_TEXTS)

    def expected(self) -> Matrix:
        return self.encode(CHECK_TEXTS)

    def difference(self, rows: Matrix, expected: Matrix) -> str | None:
        """In direction or, where the model does not bring its vectors to unit length itself, in length."""
        lengths, own = np.linalg.norm(rows, axis=1), np.linalg.norm(expected, axis=1)
        cosine = float(np.nan_to_num((rows * expected).sum(axis=1) / (lengths * own)).min())
        least = CHECK_COSINE if self.dtype == torch.float32 else CHECK_COSINE_HALF
        if cosine < least:
            return f"cosine {cosine:.5f}, at least {least} expected"
        off = float(np.abs(lengths / own - 1).max())
        if not self.ends_normalized and off > LENGTH_TOLERANCE[self.dtype]:
            return f"lengths differ by {off:.1%}"
        return None


def load(kind: type[M], source: ModelSource, device: torch.device, dtype: torch.dtype) -> M:
    """The model, in eval mode; raises StartFailed where it cannot be loaded or reads no text."""
    if not sys.stderr.isatty():
        disable_progress_bar()  # type: ignore[no-untyped-call]  # a bar is for people; a log file gets lines
    try:
        model: M = kind(
            source.location,
            device=str(device),
            revision=source.revision,
            local_files_only=source.local,
            trust_remote_code=False,
            model_kwargs={"dtype": dtype},
        )
    except (OSError, ValueError, ImportError) as error:
        raise StartFailed(f"The model {source.location} cannot be loaded: {error}") from error
    if not isinstance(model[0], Transformer) or "text" not in model.modalities:
        raise StartFailed(f"The model {source.location} does not begin with a transformer that reads text.")
    model.eval()
    return model


def _pooling_name(mode: str | Sequence[str]) -> str:
    """As text-embeddings-inference names it; several are joined by a plus."""
    modes = [mode] if isinstance(mode, str) else mode
    return "+".join("last_token" if one == "lasttoken" else one for one in modes)
