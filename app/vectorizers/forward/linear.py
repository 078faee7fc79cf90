"""Linear layers that are only ever run forward: weights where a kernel wants them, the activation in the same step."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # its customary name
from torch import Tensor, nn

Function = Callable[[Tensor], Tensor]

PREPACK_FOR_TOKENS = 512
"""The number of tokens for which oneDNN chooses the order of the weights in memory; any other works too."""


def can_prepack(weight: Tensor) -> bool:
    """Whether oneDNN multiplies this kind of weights faster from an order of its own.

    In bfloat16 on a CPU, an ordinary layer is reordered at every call: for the few tokens of a lone text that takes
    longer than the product. In float32 nothing is gained.
    """
    operators: Any = torch.ops.mkldnn
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        and hasattr(operators, "_linear_pointwise")
        and bool(operators._is_mkldnn_bf16_supported())
    )


class PrepackedLinear(nn.Module):
    """A linear layer from oneDNN's own order of weights; inputs of shape (…, in), outputs (…, out)."""

    def __init__(self, weight: Tensor, bias: Tensor | None, gelu: str | None = None) -> None:
        """`gelu` is None for no activation, or what torch calls its approximation: none or tanh."""
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), PREPACK_FOR_TOKENS)
        self._bias = None if bias is None else bias.detach()
        self._activation: tuple[str, list[float], str] = ("none", [], "") if gelu is None else ("gelu", [], gelu)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._weight, self._bias, *self._activation)
        return outputs


def linear(weight: Tensor, bias: Tensor | None, gelu: str | None = None) -> Function:
    """`x @ weight.T + bias`, then GELU where one is named, as one function."""
    if can_prepack(weight):
        return PrepackedLinear(weight, bias, gelu).forward
    if gelu is None:
        return lambda inputs: F.linear(inputs, weight, bias)
    return lambda inputs: F.gelu(F.linear(inputs, weight, bias), approximate=gelu)


def prepack_linears(model: nn.Module) -> None:
    """Replace each linear layer of a model by a prepacked one, where that pays."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and can_prepack(child.weight):
                setattr(parent, name, PrepackedLinear(child.weight, child.bias))
