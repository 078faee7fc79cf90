"""Which architectures can be packed: those whose attention is a function transformers lets one choose, and whose
positions can be given token by token."""

from collections.abc import Callable
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from app.vectorizers.forward.pooling import POOLS


def _from_zero(config: Any) -> int:
    return 0


def _after_padding(config: Any) -> int:
    """RoBERTa counts positions from the padding id on, which itself is position `pad_token_id`."""
    return int(config.pad_token_id) + 1


FIRST_POSITION: dict[str, Callable[[Any], int]] = {
    "bert": _from_zero,
    "distilbert": _from_zero,
    "roberta": _after_padding,
    "xlm-roberta": _after_padding,
    "camembert": _after_padding,
    "modernbert": _from_zero,
    "nomic_bert": _from_zero,
    "gte": _from_zero,
    "eurobert": _from_zero,
    "qwen2": _from_zero,
    "qwen3": _from_zero,
    "llama": _from_zero,
    "mistral": _from_zero,
}
"""Each family that the tests compare with sentence-transformers, and the position of a text's first token."""

PLAIN_FORWARD = {"method": "forward", "method_output_name": "last_hidden_state"}
BATCH_DEPENDENT_ROPE = {"dynamic", "longrope"}
"""Rotary positions that depend on the longest text of the batch, which would reach from one text into another."""


class CannotPack(Exception):
    """The model is served padded; the message says why."""


def check_can_pack(model: SentenceTransformer) -> None:
    """Raises CannotPack with a sentence's worth of reason."""
    first, second = (*list(model), None)[:2]
    assert isinstance(first, Transformer)
    if model.device.type not in ("cpu", "cuda"):
        raise CannotPack(f"packing has not been tried on {model.device.type}")
    config = first.auto_model.config
    if config.model_type not in FIRST_POSITION:
        raise CannotPack(f"the architecture {config.model_type} is not among those known to pack")
    if first.modality_config.get("text") != PLAIN_FORWARD:
        raise CannotPack("what it gives for a text is not its last hidden state")
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = {rope.get("rope_type")} | {one.get("rope_type") for one in rope.values() if isinstance(one, dict)}
    if kinds & BATCH_DEPENDENT_ROPE:
        raise CannotPack("its rotary positions depend on the longest text of a batch")
    if not isinstance(second, Pooling):
        raise CannotPack("its second module is not a pooling")
    if second.pooling_mode not in POOLS:
        raise CannotPack(f"the pooling {second.pooling_mode} is not among {', '.join(POOLS)}")
    if not second.include_prompt:
        raise CannotPack("its pooling leaves the prompt out")


def first_position(config: Any) -> int:
    """The position id of a text's first token."""
    return FIRST_POSITION[config.model_type](config)
