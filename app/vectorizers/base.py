"""What a vectorizer is: a callable that owns a model and its device, and the step that prepares its inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from app.errors import NotFinite

Matrix = npt.NDArray[np.float32]
"""Rows of vectors, shape (n, dimension)."""
TINY = np.float32(1e-12)
"""Least length that a vector is divided by, as torch.nn.functional.normalize has it."""


class TextInput(NamedTuple):
    """One input as a request brings it.

    `content` is a text, or token ids of the model's own vocabulary with the special tokens it wants. A text is
    prefixed with `prompt`; ids are decoded first where there is a prompt. What exceeds the model's maximum is cut
    from the right, or from the left; where `truncate` is off, the embedder refuses what had to be cut. `normalize`
    scales the vector to unit length. `pair` is the second text where a model reads two at a time, as a cross-encoder
    does; `per_token` is for the embedder: each token's vector is wanted instead of the pooled one.
    """

    content: str | list[int]
    prompt: str = ""
    cut_left: bool = False
    truncate: bool = True
    normalize: bool = True
    pair: str | None = None
    per_token: bool = False


class Token(NamedTuple):
    """One token of a text: characters `start` to `stop` of it, both None for a special token.

    `text` is that part of the text; for a special token it is the token's own name.
    """

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Encoding(Protocol):
    """One input, ready for the device."""

    @property
    def n_tokens(self) -> int:
        """Tokens the model will read, special ones included."""

    @property
    def n_cut(self) -> int:
        """Tokens cut off because the input exceeds the model's maximum."""


E = TypeVar("E", bound=Encoding)


@dataclass(frozen=True, slots=True)
class WarmupStep:
    """One measured forward: so many tokens took so long."""

    tokens: int
    items: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What there is to know about a loaded model; `details` holds what only this kind of vectorizer has to say."""

    name: str
    dimension: int
    max_input_tokens: int
    vocabulary_size: int
    device: str
    dtype: str
    max_batch_tokens: int
    workers: int
    """Threads that should call it."""
    side_by_side: int = 0
    """Of those that share a device, how many run full batches at a time; the others are for who cannot wait. 0 where
    that makes no difference."""
    batch_base_s: float = 0.0
    batch_token_s: float = 0.0
    """A batch takes about `batch_base_s + batch_token_s · tokens` seconds; both 0 where that was not measured."""
    ceiling_tokens_per_s: float = 0.0
    """The most that all workers together reached at warm-up; 0 where that was not measured."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    warmup: Sequence[WarmupStep] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    kind: Literal["embedding", "classification"] = "embedding"
    """What its rows are: vectors, or a classification head's logits, one for each of `labels`."""
    labels: Sequence[str] = ()


class Vectorizer(Protocol, Generic[E]):
    """Everything costly happens in the constructor; calling it only computes.

    `tokenize` may run on another thread than the calls. Each worker calls what `for_worker` gave it, from its own
    thread, so that an object that is given to several is called by as many threads at a time.
    """

    @property
    def info(self) -> ModelInfo:
        """The loaded model, as it really is: device, dtype and budget as found."""

    @property
    def host_s(self) -> float:
        """Where the device works by itself: how long the calling thread is busy with a batch before the device can
        begin with it, in seconds. 0 where the calling thread does the work."""

    def computed_tokens(self, sizes: Sequence[int]) -> int:
        """How many tokens it computes for a batch of items of these sizes in tokens, padding included. May be called
        from any thread, and takes microseconds."""

    def tokenize(self, inputs: Sequence[TextInput]) -> list[E]:
        """Prepare inputs for the device, in their order; touches no device. Token ids must be of the vocabulary."""

    def __call__(self, inputs: Sequence[str] | Sequence[E], *, normalize: bool | None = None) -> Matrix:
        """Embed texts or encodings: float32 of shape (n, dimension), rows in the order of `inputs`.

        `normalize` scales rows to unit length; None does as the model's own settings say.

        Raises OutOfMemory, NotFinite, BackendFailed.
        """

    def token_vectors(self, encodings: Sequence[E]) -> list[Matrix]:
        """The model's last hidden state at each token, special tokens included, before pooling and not normalised: for
        each encoding float32 of shape (n_tokens, width), in their order.

        Raises as a call does, and WrongModel where the model has a classification head instead.
        """

    def tokens(self, texts: Sequence[str], *, special: bool) -> list[list[Token]]:
        """The tokens of each text as they are, neither cut nor prefixed; with the special tokens the model wants, if
        `special`. May be called from any thread.

        Raises TokenizerFailed.
        """

    def decode(self, ids: Sequence[Sequence[int]], *, skip_special: bool) -> list[str]:
        """The text of each list of token ids, which must be of the vocabulary; without special tokens, if
        `skip_special`. May be called from any thread.

        Raises TokenizerFailed.
        """

    def for_worker(self, index: int) -> "Vectorizer[E]":
        """A vectorizer for worker number `index`, made on that worker's thread: it shares what can be shared."""


def require_finite(rows: Matrix) -> Matrix:
    """The rows as they are; raises NotFinite where one holds NaN or infinity."""
    if not np.isfinite(rows).all():
        bad = int(np.count_nonzero(~np.isfinite(rows).all(axis=1)))
        raise NotFinite(f"The model returned NaN or infinity in {bad} of {len(rows)} rows.")
    return rows
