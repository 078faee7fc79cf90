"""Small models with random weights, one of each family, for vectors and for classification, saved to a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedTokenizerFast

VOCABULARY = ["<pad>", "<s>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz0123456789"]
N_POSITIONS = 160
SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": len(VOCABULARY),
    "max_position_embeddings": N_POSITIONS + 8,  # RoBERTa's kin begin to count at 1
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
    "initializer_range": 0.3,  # large, so that mistakes show
}
SPECIAL: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 48, "n_layers": 3, "n_heads": 4, "hidden_dim": 64},
    "modernbert": {"num_hidden_layers": 4, "local_attention": 16, "global_attn_every_n_layers": 2},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 12},
    "llama": {"num_key_value_heads": 2},
    "mistral": {"num_key_value_heads": 2, "sliding_window": 8},
}
CAUSAL = {"qwen2", "qwen3", "llama", "mistral"}


TYPED = {"bert", "nomic_bert", "gte"}
"""Families whose tokenizers tell the model which of two texts a token belongs to."""


def tokenizer(*, left: bool, typed: bool = False) -> PreTrainedTokenizerFast:
    """A character is a token; a text is put between <s> and </s>, and a second one ends with another </s>."""
    library = Tokenizer(models.WordLevel({token: i for i, token in enumerate(VOCABULARY)}, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=library,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        padding_side="left" if left else "right",
        model_max_length=N_POSITIONS,
        model_input_names=["input_ids", *(["token_type_ids"] if typed else []), "attention_mask"],
    )


def save_model(
    folder: Path, family: str, pooling: str = "mean", *, dense: bool = False, changes: dict[str, Any] | None = None
) -> Path:
    """Make a model and save it; returns its folder."""
    torch.manual_seed(0)
    options = {**SIZES, **SPECIAL.get(family, {}), **(changes or {})}
    AutoModel.from_config(  # type: ignore[no-untyped-call]
        AutoConfig.for_model(family, **options)
    ).save_pretrained(folder / "bare")
    tokenizer(left=family in CAUSAL).save_pretrained(folder / "bare")
    modules: list[Any] = [Transformer(str(folder / "bare"), max_seq_length=N_POSITIONS)]
    modules.append(Pooling(int(SIZES["hidden_size"]), pooling))
    if dense:
        modules.append(Dense(int(SIZES["hidden_size"]), 24))
    SentenceTransformer(modules=[*modules, Normalize()], device="cpu").save(str(folder / "model"))
    return folder / "model"


def save_classifier(
    folder: Path, family: str, n_labels: int = 1, *, changes: dict[str, Any] | None = None, typed: bool | None = None
) -> Path:
    """Make a model with a classification head and save it as transformers does; returns its folder."""
    torch.manual_seed(0)
    options = {**SIZES, **SPECIAL.get(family, {}), **(changes or {})}
    AutoModelForSequenceClassification.from_config(  # type: ignore[no-untyped-call]
        AutoConfig.for_model(family, num_labels=n_labels, **options)
    ).save_pretrained(folder)
    tokenizer(left=family in CAUSAL, typed=family in TYPED if typed is None else typed).save_pretrained(folder)
    return folder


def ragged(lengths: Sequence[int]) -> list[str]:
    """Texts of so many characters, all different."""
    return ["".join(VOCABULARY[4 + (7 * i * i + 3 * i + length) % 36] for i in range(length)) for length in lengths]
