"""Encoders: from the tokens of a packed row to their hidden states.

BERT and its kin are run layer by layer here, in the fewest calls: a lone query took 5.7 ms of CPU time through
transformers' own modules and 3.0 ms this way (MiniLM, bfloat16, one thread). Every other architecture goes through
transformers, with our attention.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F  # noqa: N812  # its customary name
from torch import Tensor, nn

from app.vectorizers.forward.attention import NAME, Layout, Rule
from app.vectorizers.forward.linear import Function, linear, prepack_linears

GELU = {"gelu": "none", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}
"""What transformers calls a GELU, and what torch calls its approximation."""
TYPE_STRIDE = 1 << 20
"""For models without a table of positions: more than any text has tokens."""


class Encoder(Protocol):
    """From token ids and position ids, each of shape (tokens,), to hidden states (tokens, width)."""

    type_stride: int
    """What a position grows by with each token type; 0 where the encoder takes all tokens for those of type 0."""

    def __call__(self, ids: Tensor, positions: Tensor, layout: Layout) -> Tensor: ...


class AnyEncoder:
    """A model of transformers' whose attention is taken over; nothing else about it is known."""

    def __init__(self, model: Any, *, typed: bool = False) -> None:
        """`typed`: positions tell token types too, where the model knows more than one."""
        self.type_stride = TYPE_STRIDE if typed and _n_types(model) > 1 else 0
        if getattr(model, "pooler", None) is not None:
            model.pooler = None  # its output is not read
        prepack_linears(model)
        model.set_attn_implementation(NAME)
        model.config.use_cache = False
        self._model = model

    def __call__(self, ids: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        types = {}
        if self.type_stride:
            types["token_type_ids"] = positions.div(self.type_stride, rounding_mode="floor").unsqueeze(0)
            positions = positions.remainder(self.type_stride)
        outputs = self._model(input_ids=ids.unsqueeze(0), position_ids=positions.unsqueeze(0), layout=layout, **types)
        states: Tensor = outputs.last_hidden_state[0]
        return states


class Layer(NamedTuple):
    """The steps of one layer; queries, keys and values come from one projection, along the heads."""

    project: Function
    mix: Function
    norm_mixed: Function
    widen: Function
    narrow: Function
    norm: Function


class BertEncoder:
    """BERT's encoder: attention, then two linear layers, each added to its input and then normalised."""

    def __init__(self, model: Any, gelu: str, *, typed: bool = False) -> None:
        """`model` is of a family in `PARTS`; `gelu` is what torch calls the approximation of its activation. `typed`:
        positions tell token types too, where the model knows more than one."""
        config = model.config
        embeddings = model.embeddings
        types = getattr(embeddings, "token_type_embeddings", None)
        places = embeddings.position_embeddings.weight.detach()
        self.type_stride = len(places) if typed and _n_types(model) > 1 else 0
        self._words = embeddings.word_embeddings.weight.detach()
        self._places = places
        if types is not None:
            known = types.weight.detach()[: None if self.type_stride else 1]
            self._places = torch.cat([places + one for one in known])
        self._norm = _norm(embeddings.LayerNorm)
        self._heads = config.num_attention_heads
        self._layers = [
            PARTS[config.model_type](layer, gelu) for layer in model.get_submodule(LAYERS[config.model_type])
        ]

    def __call__(self, ids: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        states = self._norm(F.embedding(ids, self._words).add_(F.embedding(positions, self._places)))
        rule = Rule(causal=False, window=None, scale=None)
        tokens, width = states.shape
        heads = 3 * self._heads, width // self._heads
        for layer in self._layers:
            attended = layout.attend([layer.project(states).view(tokens, *heads)], rule)
            states = layer.norm_mixed(layer.mix(attended.view(tokens, width)).add_(states))
            states = layer.norm(layer.narrow(layer.widen(states)).add_(states))
        return states


Parts = Callable[[Any, str], Layer]


def _bert_layer(layer: Any, gelu: str) -> Layer:
    attention = layer.attention
    return Layer(
        _together(attention.self.query, attention.self.key, attention.self.value),
        _linear(attention.output.dense),
        _norm(attention.output.LayerNorm),
        _linear(layer.intermediate.dense, gelu),
        _linear(layer.output.dense),
        _norm(layer.output.LayerNorm),
    )


def _distilbert_layer(layer: Any, gelu: str) -> Layer:
    attention = layer.attention
    return Layer(
        _together(attention.q_lin, attention.k_lin, attention.v_lin),
        _linear(attention.out_lin),
        _norm(layer.sa_layer_norm),
        _linear(layer.ffn.lin1, gelu),
        _linear(layer.ffn.lin2),
        _norm(layer.output_layer_norm),
    )


LAYERS = {
    "bert": "encoder.layer",
    "roberta": "encoder.layer",
    "xlm-roberta": "encoder.layer",
    "camembert": "encoder.layer",
    "distilbert": "transformer.layer",
}
"""Where the families that are built like BERT keep their layers."""
PARTS: Mapping[str, Parts] = dict.fromkeys(LAYERS, _bert_layer) | {"distilbert": _distilbert_layer}


def encoder_of(model: Any, *, typed: bool = False) -> Encoder:
    """The fastest encoder for a model of transformers', which is changed in place or read out.

    `typed`: tokens may be of other types than 0, which `type_stride` brings into their positions.
    """
    if model.config.model_type in PARTS:
        activation = model.config.activation if model.config.model_type == "distilbert" else model.config.hidden_act
        if activation in GELU:
            return BertEncoder(model, GELU[activation], typed=typed)
    return AnyEncoder(model, typed=typed)


def _n_types(model: Any) -> int:
    """How many token types the model has an embedding for."""
    table = getattr(getattr(model, "embeddings", None), "token_type_embeddings", None)
    return table.num_embeddings if isinstance(table, nn.Embedding) else 0


def _linear(module: nn.Linear, gelu: str | None = None) -> Function:
    return linear(module.weight.detach(), module.bias.detach(), gelu)


def _together(*modules: nn.Linear) -> Function:
    weight = torch.cat([module.weight.detach() for module in modules])
    return linear(weight, torch.cat([module.bias.detach() for module in modules]))


def _norm(module: nn.LayerNorm) -> Function:
    shape, weight, bias, eps = module.normalized_shape, module.weight.detach(), module.bias.detach(), module.eps
    return lambda inputs: torch.layer_norm(inputs, shape, weight, bias, eps, False)
