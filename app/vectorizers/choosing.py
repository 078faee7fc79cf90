"""Choosing the way through a model: packed where that gives sentence-transformers' own vectors, else padded."""

import numpy as np
import structlog
import torch

from app.errors import StartFailed
from app.vectorizers.base import Matrix
from app.vectorizers.dtypes import has_bfloat16, name_of
from app.vectorizers.forward import Forward
from app.vectorizers.forward.cuda import CudaForward, has_ragged_kernel
from app.vectorizers.forward.families import CannotPack, check_can_pack
from app.vectorizers.forward.packed import PackedForward, PackedModel
from app.vectorizers.forward.padded import PaddedForward
from app.vectorizers.loading import LoadedModel
from app.vectorizers.sources import ModelSource
from app.vectorizers.warmup import LAST_TOKENS

log = structlog.get_logger(__name__)

CHECK_TEXTS = (
    "a",
    "Where is my card?",
    "Ünïcödé and 日本語, 12,345.67 €\n" * 3,
    "one two three four five six seven " * 9,
    "eight nine ten " * 70,
)
"""Ragged, and one longer than the windows of those models that look at their neighbours alone."""
CHECK_COSINE = 0.99999
CHECK_COSINE_HALF = 0.995
LENGTH_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.02, torch.bfloat16: 0.05}
"""How far the length of a vector may be from sentence-transformers' own, relative to it."""


def load_finite(
    source: ModelSource, device: torch.device, dtype: torch.dtype, *, may_widen: bool
) -> tuple[LoadedModel, Matrix]:
    """The model, and what sentence-transformers makes of the check texts; where that overflows `dtype`, in a wider type
    if `may_widen`."""
    loaded = LoadedModel(source, device, dtype)
    expected = loaded.encode(CHECK_TEXTS)
    if np.isfinite(expected).all():
        return loaded, expected
    if not may_widen or dtype == torch.float32:
        raise StartFailed(
            f"The model's own vectors are not finite in {name_of(dtype)}; try --dtype bfloat16 or --dtype float32."
        )
    wider = torch.bfloat16 if dtype == torch.float16 and has_bfloat16(device) else torch.float32
    log.warning("the model overflows; it is loaded in a wider type", dtype=name_of(dtype), instead=name_of(wider))
    return load_finite(source, device, wider, may_widen=True)


def choose_forward(loaded: LoadedModel, expected: Matrix) -> Forward:
    """The packed forward, or else the padded one; either only if its vectors are those expected. Uses `loaded` up.

    Raises StartFailed where neither is right.
    """
    try:
        check_can_pack(loaded.model)
    except CannotPack as refusal:
        reason = str(refusal)
    else:
        try:
            return _packed(loaded, expected)
        except CannotPack as failure:
            reason = str(failure)
        loaded = LoadedModel(loaded.source, loaded.device, loaded.dtype)  # packing has changed the other
    log.info("texts are padded, since this model cannot be packed", reason=reason)
    padded = PaddedForward(loaded.model, loaded.tokenizer, max_tokens=LAST_TOKENS)
    if difference := _difference(padded, loaded, expected):
        raise StartFailed(
            f"The model's vectors do not come out as sentence-transformers computes them ({difference}); "
            "Convoy does not serve it."
        )
    return padded


def _packed(loaded: LoadedModel, expected: Matrix) -> Forward:
    """The packed forward for this device; raises CannotPack where it fails or its rows are not those expected."""
    model = PackedModel(loaded.model)
    forward: Forward
    if loaded.device.type == "cuda":
        forward = CudaForward(model, loaded.device, ragged=has_ragged_kernel(loaded.device, loaded.dtype))
    else:
        forward = PackedForward(model)
    try:
        difference = _difference(forward, loaded, expected)
    except (RuntimeError, TypeError, AttributeError, LookupError) as error:  # transformers' modules have changed
        raise CannotPack(f"its packed forward failed: {error!r}") from error
    if difference:
        raise CannotPack(f"packed vectors differ from sentence-transformers' own ({difference})")
    return forward


def _difference(forward: Forward, loaded: LoadedModel, expected: Matrix) -> str | None:
    """How a forward's rows differ from those expected, in words: in direction or, where the model does not bring them
    to unit length itself, in length; None where they do not."""
    with torch.inference_mode():
        rows = forward(loaded.tokenize(CHECK_TEXTS))
    lengths, own = np.linalg.norm(rows, axis=1), np.linalg.norm(expected, axis=1)
    cosine = float(np.nan_to_num((rows * expected).sum(axis=1) / (lengths * own)).min())
    least = CHECK_COSINE if loaded.dtype == torch.float32 else CHECK_COSINE_HALF
    if cosine < least:
        return f"cosine {cosine:.5f}, at least {least} expected"
    off = float(np.abs(lengths / own - 1).max())
    if not loaded.ends_normalized and off > LENGTH_TOLERANCE[loaded.dtype]:
        return f"lengths differ by {off:.1%}"
    return None
