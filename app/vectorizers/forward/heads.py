"""Classification heads: from the tokens of a packed row to one row of logits a text, by the model's own modules, in
float32."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from app.vectorizers.forward.pooling import first, mean

Head = Callable[[Tensor, Tensor], Tensor]
"""From hidden states (tokens, width) and boundaries (n + 1,) to float32 logits (n, labels)."""


def _pooler_and_classifier(model: Any) -> Head:
    """BERT's: the base model's pooler over the first token, then a linear layer."""
    pooler, classifier = model.base_model.pooler.float(), model.classifier.float()
    return lambda hidden, starts: classifier(pooler(_as_texts(first(hidden, starts))))


def _classifier_over_first(model: Any) -> Head:
    """RoBERTa's: one module that reads the first token itself."""
    classifier = model.classifier.float()
    return lambda hidden, starts: classifier(_as_texts(first(hidden, starts)))


def _two_linear_layers(model: Any) -> Head:
    """DistilBERT's."""
    before, classifier = model.pre_classifier.float(), model.classifier.float()
    return lambda hidden, starts: classifier(before(first(hidden, starts)).relu())


def _pooled_by_configuration(model: Any) -> Head:
    """ModernBERT's: over the first token or the mean of all, as its configuration says."""
    pool = mean if model.config.classifier_pooling == "mean" else first
    head, classifier = model.head.float(), model.classifier.float()
    return lambda hidden, starts: classifier(head(pool(hidden, starts)))


HEADS: dict[str, Callable[[Any], Head]] = {
    "bert": _pooler_and_classifier,
    "roberta": _classifier_over_first,
    "xlm-roberta": _classifier_over_first,
    "camembert": _classifier_over_first,
    "distilbert": _two_linear_layers,
    "modernbert": _pooled_by_configuration,
    "nomic_bert": _pooler_and_classifier,
    "gte": _pooler_and_classifier,
}
"""How to take over the head of a model for sequence classification, by its family; others are padded."""


def head_of(model: nn.Module) -> Head:
    """The head of a model of a family in `HEADS`, which is changed in place; to be taken before its encoder is."""
    config: Any = model.config
    return HEADS[config.model_type](model)


def _as_texts(rows: Tensor) -> Tensor:
    """Rows (n, width) as texts of one token (n, 1, width): these modules pick the first token themselves."""
    return rows.unsqueeze(1)
