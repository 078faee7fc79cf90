"""Small sentence-transformers models with random weights, one of each family, saved to a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

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


def tokenizer(*, left: bool) -> PreTrainedTokenizerFast:
    """A character is a token; a text is put between <s> and </s>."""
    library = Tokenizer(models.WordLevel({token: i for i, token in enumerate(VOCABULARY)}, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=library,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        padding_side="left" if left else "right",
        model_max_length=N_POSITIONS,
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


def ragged(lengths: Sequence[int]) -> list[str]:
    """Texts of so many characters, all different."""
    return ["".join(VOCABULARY[4 + (7 * i * i + 3 * i + length) % 36] for i in range(length)) for length in lengths]
