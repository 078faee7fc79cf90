"""Choosing the way through a model: packed where that gives sentence-transformers' own rows, else padded."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
import structlog
import torch

from app.errors import StartFailed
from app.vectorizers.base import Matrix
from app.vectorizers.dtypes import has_bfloat16, name_of
from app.vectorizers.forward import Forward
from app.vectorizers.forward.cuda import CudaForward, has_ragged_kernel
from app.vectorizers.forward.families import CannotPack
from app.vectorizers.forward.packed import Packed, PackedForward
from app.vectorizers.forward.padded import PaddedForward
from app.vectorizers.tokenizer import TokenIds

log = structlog.get_logger(__name__)


class Checkable(Protocol):
    """A loaded model that can be run in several ways, and says what each should give."""

    device: torch.device
    dtype: torch.dtype

    def again(self) -> Any:
        """The same model, loaded anew."""

    def check_can_pack(self) -> None:
        """Raises CannotPack where it is clear beforehand."""

    def packed(self) -> Packed:
        """The model as one that reads packed rows; uses it up."""

    def padded(self) -> PaddedForward:
        """The padded way through it."""

    def check_inputs(self) -> list[TokenIds]:
        """Ragged inputs."""

    def expected(self) -> Matrix:
        """What sentence-transformers itself makes of them, float32 of shape (n, dimension)."""

    def difference(self, rows: Matrix, expected: Matrix) -> str | None:
        """How rows differ from those expected, in words; None where they do not."""


L = TypeVar("L", bound=Checkable)


def load_finite(load: Callable[[torch.dtype], L], dtype: torch.dtype, *, may_widen: bool) -> tuple[L, Matrix]:
    """The model, and what sentence-transformers makes of the check inputs; where that overflows `dtype`, in a wider
    type if `may_widen`."""
    loaded = load(dtype)
    expected = loaded.expected()
    if np.isfinite(expected).all():
        return loaded, expected
    if not may_widen or dtype == torch.float32:
        raise StartFailed(
            f"The model's own vectors are not finite in {name_of(dtype)}; try --dtype bfloat16 or --dtype float32."
        )
    wider = torch.bfloat16 if dtype == torch.float16 and has_bfloat16(loaded.device) else torch.float32
    log.warning("the model overflows; it is loaded in a wider type", dtype=name_of(dtype), instead=name_of(wider))
    return load_finite(load, wider, may_widen=True)


def choose_forward(loaded: Checkable, expected: Matrix) -> Forward:
    """The packed forward, or else the padded one; either only if its rows are those expected. Uses `loaded` up.

    Raises StartFailed where neither is right.
    """
    try:
        loaded.check_can_pack()
    except CannotPack as refusal:
        reason = str(refusal)
    else:
        try:
            return _packed(loaded, expected)
        except CannotPack as failure:
            reason = str(failure)
        loaded = loaded.again()  # packing has changed the other
    log.info("texts are padded, since this model cannot be packed", reason=reason)
    padded = loaded.padded()
    try:
        difference = _difference(padded, loaded, expected)
    except (RuntimeError, ValueError) as error:
        raise StartFailed(f"The model cannot be run in batches: {error}") from error
    if difference:
        raise StartFailed(
            f"The model's vectors do not come out as sentence-transformers computes them ({difference}); "
            "Convoy does not serve it."
        )
    return padded


def _packed(loaded: Checkable, expected: Matrix) -> Forward:
    """The packed forward for this device; raises CannotPack where it fails or its rows are not those expected."""
    forward: Forward
    try:
        model = loaded.packed()
        if loaded.device.type == "cuda":
            forward = CudaForward(model, loaded.device, ragged=has_ragged_kernel(loaded.device, loaded.dtype))
        else:
            forward = PackedForward(model)
        difference = _difference(forward, loaded, expected)
    except (RuntimeError, TypeError, AttributeError, LookupError) as error:  # transformers' modules have changed
        raise CannotPack(f"its packed forward failed: {error!r}") from error
    if difference:
        raise CannotPack(f"packed vectors differ from sentence-transformers' own ({difference})")
    return forward


def _difference(forward: Forward, loaded: Checkable, expected: Matrix) -> str | None:
    with torch.inference_mode():
        rows = forward(loaded.check_inputs())
    return loaded.difference(rows, expected)
