"""Which architectures can be packed: those whose attention is a function transformers lets one choose, and whose
positions can be given token by token."""

from typing import Any

from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import nn

from app.vectorizers.forward.heads import HEADS
from app.vectorizers.forward.pooling import POOLS

FAMILIES = (
    "bert",
    "distilbert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "modernbert",
    "nomic_bert",
    "gte",
    "eurobert",
    "qwen2",
    "qwen3",
    "llama",
    "mistral",
)
"""Those that the tests compare with sentence-transformers."""
COUNT_AFTER_PADDING = {"roberta", "xlm-roberta", "camembert", "mpnet"}
"""Their positions begin after the padding id, which is the position of padding itself."""

PLAIN_FORWARD = {"method": "forward", "method_output_name": "last_hidden_state"}
BATCH_DEPENDENT_ROPE = {"dynamic", "longrope"}
"""Rotary positions that change when the longest text of a batch exceeds the length of the original training: one text
would change the vectors of others, and in transformers those of later batches too."""


class CannotPack(Exception):
    """The model is served padded; the message says why."""


def check_can_pack(model: SentenceTransformer) -> None:
    """Raises CannotPack with a sentence's worth of reason."""
    first, second = (*list(model), None)[:2]
    assert isinstance(first, Transformer)
    _check_device(model)
    config = first.auto_model.config
    if config.model_type not in FAMILIES:
        raise CannotPack(f"the architecture {config.model_type} is not among those known to pack")
    if first.modality_config.get("text") != PLAIN_FORWARD:
        raise CannotPack("what it gives for a text is not its last hidden state")
    if not isinstance(second, Pooling):
        raise CannotPack("its second module is not a pooling")
    if second.pooling_mode not in POOLS:
        raise CannotPack(f"the pooling {second.pooling_mode} is not among {', '.join(POOLS)}")
    if not second.include_prompt:
        raise CannotPack("its pooling leaves the prompt out")


def check_can_pack_classifier(model: CrossEncoder) -> None:
    """Raises CannotPack with a sentence's worth of reason."""
    _check_device(model)
    whole: Any = model.model
    family = whole.config.model_type
    if family not in HEADS:
        raise CannotPack(f"the classification head of the architecture {family} is not among those known to pack")


def _check_device(model: SentenceTransformer | CrossEncoder) -> None:
    if model.device.type not in ("cpu", "cuda"):
        raise CannotPack(f"packing has not been tried on {model.device.type}")


def pad_position(config: Any) -> int | None:
    """The position that padding has, where a family counts from the one after it; None where texts count from 0."""
    return int(config.pad_token_id) if config.model_type in COUNT_AFTER_PADDING else None


def usable_positions(transformer: Any) -> int | None:
    """How many tokens of a text have a position in the model's table of positions; None where it has no table."""
    table = getattr(getattr(transformer, "embeddings", None), "position_embeddings", None)
    if not isinstance(table, nn.Embedding):
        return None
    taken = pad_position(transformer.config)
    return table.num_embeddings if taken is None else table.num_embeddings - taken - 1


def longest_independent_text(config: Any) -> int | None:
    """The most tokens up to which no text's rotary positions depend on another's; None where they never do."""
    rope = getattr(config, "rope_parameters", None) or {}
    every = [one for one in (rope, *rope.values()) if isinstance(one, dict)]
    if not {one.get("rope_type") for one in every} & BATCH_DEPENDENT_ROPE:
        return None
    original = [one["original_max_position_embeddings"] for one in every if "original_max_position_embeddings" in one]
    return int(min([config.max_position_embeddings, *original]))
