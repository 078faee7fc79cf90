"""The errors a caller of the embedder can meet; each class is one sentence, none knows a status code.

ConvoyError
├── InvalidInput        the request can never be answered as it stands
│   ├── EmptyInput
│   └── TokenizerFailed
├── UnknownModel        the request names a model that is not served here
├── WrongModel          the model that is served cannot do this
├── NotAccepted         refused before any work; the same request may succeed later
│   ├── QueueFull
│   ├── WouldBeLate
│   ├── NotReady
│   └── ShuttingDown
├── DeadlineExceeded    accepted, but not answered in time
├── BackendFailed       the model or its device failed on this item
│   ├── OutOfMemory
│   ├── NotFinite
│   └── WorkerDied
└── StartFailed         the service cannot start as it was told to
"""


class ConvoyError(Exception):
    """Anything this service reports in its own words."""


class InvalidInput(ConvoyError):
    """An input has a problem that the caller must mend.

    `index` is the position of the offending input in the request, `field` the name of the option at fault; both are
    None where the request as a whole is meant.
    """

    def __init__(self, message: str, *, index: int | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.index = index
        self.field = field


class EmptyInput(InvalidInput):
    """There is nothing to embed."""


class TokenizerFailed(InvalidInput):
    """The tokenizer cannot read this text."""


class UnknownModel(ConvoyError):
    """The request names a model that is not served here; `field` is where it does."""

    field = "model"


class WrongModel(ConvoyError):
    """The model that is served is of another kind than the request needs."""


class NotAccepted(ConvoyError):
    """The request was refused before any work was done on it; `retry_after_s` says when to come back."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(NotAccepted):
    """More items or tokens would wait than the queue may hold."""


class WouldBeLate(NotAccepted):
    """So much waits that the answer would come after the request's deadline."""


class NotReady(NotAccepted):
    """The model is still loading, or the service has lost its workers."""


class ShuttingDown(NotAccepted):
    """The service is draining: it finishes what it accepted and accepts nothing new."""


class DeadlineExceeded(ConvoyError):
    """The answer was not ready before the request's deadline."""


class BackendFailed(ConvoyError):
    """The model or its device failed on this item."""


class OutOfMemory(BackendFailed):
    """The device had too little memory for the batch."""


class NotFinite(BackendFailed):
    """The model returned NaN or infinity."""


class WorkerDied(BackendFailed):
    """The thread that runs the model has ended."""


class StartFailed(ConvoyError):
    """The service cannot start: the sentence says what to change."""


def own_copy(error: Exception) -> Exception:
    """An exception for one caller alone: one object raised in several tasks would mix up their tracebacks.

    What is not ours becomes BackendFailed; the original is always the cause.
    """
    if isinstance(error, NotAccepted):
        own: Exception = type(error)(str(error), retry_after_s=error.retry_after_s)
    elif isinstance(error, InvalidInput):
        own = type(error)(str(error), index=error.index, field=error.field)
    elif isinstance(error, ConvoyError):
        own = type(error)(*error.args)
    else:
        own = BackendFailed(f"{type(error).__name__}: {error}")
    own.__cause__ = error
    return own
