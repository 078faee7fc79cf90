"""The one table from errors to statuses, and how a protocol words an error's body."""

import math
from collections.abc import Callable
from typing import NamedTuple

import orjson
from pydantic import BaseModel

from app.errors import (
    BackendFailed,
    ConvoyError,
    DeadlineExceeded,
    EmptyInput,
    InvalidInput,
    NotAccepted,
    NotReady,
    QueueFull,
    ShuttingDown,
    TokenizerFailed,
    UnknownModel,
    WouldBeLate,
    WrongModel,
)


class HttpError(ConvoyError):
    """A problem of the exchange itself rather than of what it asks for."""

    headers: tuple[tuple[bytes, bytes], ...] = ()


class Unauthorized(HttpError):
    """No key, or the wrong one."""

    headers = ((b"www-authenticate", b"Bearer"),)


class NotFound(HttpError):
    """There is no such path."""


class MethodNotAllowed(HttpError):
    """The path is there, but not for this method."""

    def __init__(self, method: str, path: str, allowed: str) -> None:
        super().__init__(f"{path} does not take {method}; it takes {allowed}.")
        self.headers = ((b"allow", allowed.encode()),)


class BodyTooLarge(HttpError):
    """The body exceeds the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is larger than {limit} bytes, the limit (--max-body-bytes); send it in parts.")


class BodyTooSlow(HttpError):
    """The body did not arrive in time."""


class UnsupportedMediaType(HttpError):
    """The body is in a format that is not read here."""


TABLE: dict[type[Exception], tuple[int, str]] = {
    Unauthorized: (401, "Unauthorized"),
    NotFound: (404, "NotFound"),
    UnknownModel: (404, "NotFound"),
    MethodNotAllowed: (405, "MethodNotAllowed"),
    BodyTooSlow: (408, "Timeout"),
    BodyTooLarge: (413, "TooLarge"),
    UnsupportedMediaType: (415, "UnsupportedMediaType"),
    EmptyInput: (422, "Empty"),
    TokenizerFailed: (422, "Tokenizer"),
    InvalidInput: (422, "Validation"),
    WrongModel: (424, "Backend"),
    QueueFull: (429, "Overloaded"),
    WouldBeLate: (429, "Overloaded"),
    BackendFailed: (500, "Backend"),
    NotReady: (503, "Unhealthy"),
    ShuttingDown: (503, "Unhealthy"),
    DeadlineExceeded: (504, "Timeout"),
}
"""Error class to status and `error_type`: text-embeddings-inference's own names where it has one."""

INTERNAL = (500, "Internal")


def status_of(error: Exception) -> tuple[int, str]:
    """The nearest entry of the table; whatever is not in it is Internal."""
    return next((TABLE[kind] for kind in type(error).__mro__ if kind in TABLE), INTERNAL)


def message_of(error: Exception, status: int, request_id: bytes) -> str:
    """What the client is told: nothing of the inside where the fault is ours."""
    if status == 500:
        what = "The model failed on this input" if isinstance(error, BackendFailed) else "Something went wrong here"
        return f"{what}; the cause is in the server's log under request id {request_id.decode()}."
    return str(error)


def headers_of(error: Exception) -> tuple[tuple[bytes, bytes], ...]:
    """Headers that go with the error: when to come back, what to authenticate with, which methods there are."""
    if isinstance(error, NotAccepted):
        return (
            (b"retry-after", b"%d" % math.ceil(error.retry_after_s)),
            (b"retry-after-ms", b"%d" % math.ceil(error.retry_after_s * 1000)),  # what OpenAI's clients look at first
        )
    return error.headers if isinstance(error, HttpError) else ()


class Problem(NamedTuple):
    """An error as a client may see it: `field` is where in the request it lies, None where that cannot be said."""

    status: int
    error_type: str
    message: str
    field: str | None = None


class ErrorShape(NamedTuple):
    """How a protocol words an error: the body, as a value for JSON, and its description."""

    body: Callable[[Problem], object]
    schema: type[BaseModel]


class ErrorBody(BaseModel):
    """An error, as text-embeddings-inference words it."""

    error: str
    error_type: str


def _tei_body(problem: Problem) -> object:
    return {"error": problem.message, "error_type": problem.error_type}


TEI_ERROR = ErrorShape(_tei_body, ErrorBody)
"""The shape of every path that no other protocol owns."""


def problem_of(error: Exception, request_id: bytes) -> Problem:
    """What the client is told of an error."""
    status, error_type = status_of(error)
    field = error.field if isinstance(error, InvalidInput | UnknownModel) else None
    return Problem(status, error_type, message_of(error, status, request_id), field)


def error_body(problem: Problem, shape: ErrorShape) -> bytes:
    """The body of every error, worded by the protocol that was asked."""
    return orjson.dumps(shape.body(problem))
