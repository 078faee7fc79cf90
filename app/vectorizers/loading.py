"""Loading: a model's files, by sentence-transformers, into its modules and its tokenizer."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers.utils.logging import disable_progress_bar

from app.errors import StartFailed
from app.vectorizers.base import Matrix, TextInput
from app.vectorizers.forward.families import longest_independent_text, usable_positions
from app.vectorizers.sources import ModelSource
from app.vectorizers.tokenizer import TextTokenizer, TokenIds


class LoadedModel:
    """A sentence-transformers model in eval mode, and what there is to know of it without running it."""

    def __init__(self, source: ModelSource, device: torch.device, dtype: torch.dtype) -> None:
        """Raises StartFailed with a sentence that says what to change."""
        model = _load(source, device, dtype)
        first: Any = model[0]
        self.source = source
        self.device = device
        self.dtype = dtype
        self.model = model
        self.dimension = int(model.get_embedding_dimension() or 0)
        self.architecture = type(first.auto_model).__name__
        self.module_names = [type(module).__name__ for module in model]
        self.ends_normalized = isinstance(model[-1], Normalize)
        self.prompts = {name: prompt or "" for name, prompt in model.prompts.items()}
        self.default_prompt_name: str | None = model.default_prompt_name
        self.tokenizer = TextTokenizer(
            model.tokenizer,
            max_tokens=model.max_seq_length,
            positions=usable_positions(first.auto_model),
            embedded_tokens=first.auto_model.get_input_embeddings().weight.shape[0],
            counts_prompt=any(isinstance(module, Pooling) and not module.include_prompt for module in model),
        )

        model.max_seq_length = self.tokenizer.max_tokens  # sentence-transformers itself does not look at the positions
        independent = longest_independent_text(first.auto_model.config)
        if independent is not None and self.tokenizer.max_tokens > independent:
            raise StartFailed(
                f"The model {source.location} has rotary positions that change for all texts of a batch when one "
                f"exceeds {independent} tokens, so that a vector would depend on its company. Set max_seq_length in "
                f"its sentence_bert_config.json to {independent} (now {self.tokenizer.max_tokens})."
            )

    @property
    def default_prompt(self) -> str:
        """What SentenceTransformer.encode puts before each text."""
        return self.prompts.get(self.default_prompt_name or "", "")

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


def _load(source: ModelSource, device: torch.device, dtype: torch.dtype) -> SentenceTransformer:
    if not sys.stderr.isatty():
        disable_progress_bar()  # type: ignore[no-untyped-call]  # a bar is for people; a log file gets lines
    try:
        model = SentenceTransformer(
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
    return model.eval()
