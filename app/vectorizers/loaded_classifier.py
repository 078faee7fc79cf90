"""A loaded cross-encoder: sentence-transformers' own, with what Convoy needs to run and to check it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder

from app.errors import StartFailed
from app.vectorizers.base import Matrix, TextInput
from app.vectorizers.forward.families import check_can_pack_classifier, usable_positions
from app.vectorizers.forward.packed import PackedClassifier
from app.vectorizers.forward.padded import PaddedForward
from app.vectorizers.loading import CHECK_TEXTS, Loaded, load
from app.vectorizers.pairs import PairTokenizer
from app.vectorizers.sources import ModelSource
from app.vectorizers.tokenizer import TokenIds
from app.vectorizers.warmup import LAST_TOKENS

CHECK_PAIRS = (
    *[(CHECK_TEXTS[i], CHECK_TEXTS[j]) for i, j in ((0, 0), (1, 2), (1, 3), (2, 1), (3, 4))],
    *[(text, None) for text in CHECK_TEXTS[:4]],
)
TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.02, torch.bfloat16: 0.05}
"""How far a logit may be from sentence-transformers' own, relative to the largest; in half types, to 1 at least."""
RAW = torch.nn.Identity()
"""In place of an activation."""


class LoadedClassifier(Loaded):
    """A cross-encoder: a transformer with a classification head, which turns a text or a pair of texts into logits."""

    model: CrossEncoder
    tokenizer: PairTokenizer

    def __init__(self, source: ModelSource, device: torch.device, dtype: torch.dtype) -> None:
        """Raises StartFailed with a sentence that says what to change."""
        model = load(CrossEncoder, source, device, dtype)
        super().__init__(source, device, dtype, model)
        first: Any = model[0]
        if len(model) != 1 or first.transformer_task != "sequence-classification":
            raise StartFailed(
                f"The model {source.location} is a cross-encoder without a classification head of transformers' "
                "(…ForSequenceClassification), which Convoy does not serve."
            )
        self.dimension = int(model.num_labels)
        names = first.auto_model.config.id2label or {}
        self.labels = tuple(str(names.get(i, f"LABEL_{i}")) for i in range(self.dimension))
        transformer = first.auto_model.base_model
        self._take_tokenizer(
            PairTokenizer(
                model.tokenizer,
                max_tokens=model.max_seq_length,
                positions=usable_positions(transformer),
                embedded_tokens=transformer.get_input_embeddings().weight.shape[0],
            )
        )

    @property
    def details(self) -> Mapping[str, Any]:
        """What `/info` says of this kind of model."""
        return {
            "activation": type(self.model.activation_fn).__name__,
            "problem_type": getattr(self.model.config, "problem_type", None),
        }

    def predict(self, pairs: Sequence[tuple[str, str | None]]) -> Matrix:
        """Logits as sentence-transformers itself computes them, float32 of shape (n, labels), None for no second text.

        Raises StartFailed where it cannot.
        """
        logits = np.empty((len(pairs), self.dimension), np.float32)
        try:
            for i, (first, second) in enumerate(pairs):
                one: Any = first if second is None else (first, second)  # a list of texts would be taken for a pair
                logits[i] = self.model.predict(one, activation_fn=RAW, show_progress_bar=False)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            raise StartFailed(f"sentence-transformers cannot run the model: {error}") from error
        return logits

    # --- what choosing the way through it needs ---------------------------------------------------------------------

    def again(self) -> "LoadedClassifier":
        return LoadedClassifier(self.source, self.device, self.dtype)

    def check_can_pack(self) -> None:
        check_can_pack_classifier(self.model)

    def packed(self) -> PackedClassifier:
        return PackedClassifier(self.model)

    def padded(self) -> PaddedForward:
        return PaddedForward(self.model, self.tokenizer, max_tokens=LAST_TOKENS, output="scores")

    def check_inputs(self) -> list[TokenIds]:
        return self.tokenizer([TextInput(first, self.default_prompt, pair=second) for first, second in CHECK_PAIRS])

    def expected(self) -> Matrix:
        self._check_cut()
        return self.predict(CHECK_PAIRS)

    def _check_cut(self) -> None:
        """Raises StartFailed where texts that are too long are not cut as CrossEncoder cuts them."""
        most = self.tokenizer.max_tokens  # counting, so that a text's end does not look like its beginning
        long, longer = (" ".join(map(str, range(most, most + n * most))) for n in (2, 3))
        for first, second in ((long, None), (long, "a card"), ("a card", long), (long, longer)):
            inputs: list[Any] = [first if second is None else (first, second)]
            theirs = self.model.preprocess(inputs)["input_ids"][0].tolist()
            (ours,) = self.tokenizer([TextInput(first, pair=second)])
            if ours.ids != theirs:
                raise StartFailed(
                    f"The model's tokenizer does not cut long {'texts' if second is None else 'pairs'} as "
                    "sentence-transformers does; Convoy does not serve it."
                )

    def difference(self, rows: Matrix, expected: Matrix) -> str | None:
        largest = float(np.abs(expected).max())
        if self.dtype != torch.float32:
            largest = max(1.0, largest)
        off = float(np.nan_to_num(np.abs(rows - expected), nan=np.inf).max()) / max(largest, 1e-6)
        return f"logits differ by {off:.2%} of the largest" if off > TOLERANCE[self.dtype] else None
