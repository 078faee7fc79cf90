"""`POST /embed`: the native protocol, wire-compatible with text-embeddings-inference's route of that name."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

from app.api.call import Call, Reply
from app.api.embed_request import Asked, body_schema, parse
from app.api.encoders import as_base64_json, as_json, as_octets, in_turns
from app.api.routes import Route
from app.api.watch import Watchman
from app.embedder import Embedder, Embeddings, EmbedOptions, LaneName, ModelInfo
from app.errors import InvalidInput, NotAccepted

OCTETS = b"application/octet-stream"
JSON = b"application/json"
BILL = (
    b"parse;dur=%.3f, tokenize;dur=%.3f, queue;dur=%.3f, forward;dur=%.3f, respond;dur=%.3f, total;dur=%.3f, "
    b'batch;desc="items=%d tokens=%d%b%b"'
)
LARGE_BODY = 262_144
"""A larger body is parsed on another thread: the loop shares the interpreter with it, but goes on turning."""

EXAMPLES = {
    "one text": {"value": {"inputs": "Where is my card?"}},
    "several texts": {"value": {"inputs": ["Where is my card?", "My card has not arrived."]}},
    "short vectors in base64": {
        "value": {"inputs": "Where is my card?", "dimensions": 64, "encoding_format": "base64"}
    },
    "the simplest": {"value": {"text": "Where is my card?"}},
}
REQUEST_HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "X-Lane": (
        {"type": "string", "enum": ["interactive", "bulk"]},
        "Which lane takes the request; by default that depends on how many inputs it has.",
    ),
    "X-Request-Timeout-Ms": (
        {"type": "integer", "minimum": 1, "maximum": 10**9 - 1},
        "How long the answer may take, in milliseconds, where that is less than the service allows.",
    ),
}
LANE_NAMES: dict[bytes, LaneName] = {b"interactive": "interactive", b"bulk": "bulk"}
TIMEOUT = re.compile(rb"0*[1-9][0-9]{0,8}")
HEADERS = {
    "X-Request-Id": {"schema": {"type": "string"}, "description": "The client's own, or a new one."},
    "Server-Timing": {"schema": {"type": "string"}, "description": "Where the time of this request went, in ms."},
    "X-Embedding-Shape": {"schema": {"type": "string"}, "description": "Rows and columns, of a raw matrix."},
    "X-Embedding-Dtype": {"schema": {"type": "string"}, "description": "`<f4`, of a raw matrix."},
    "X-Truncated-Inputs": {"schema": {"type": "integer"}, "description": "How many inputs were cut, where any were."},
}
ANSWER = {
    "description": "One row for each input, in their order.",
    "headers": HEADERS,
    "content": {
        "application/json": {
            "schema": {
                "anyOf": [
                    {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
                    {"type": "array", "items": {"type": "string", "contentEncoding": "base64"}},
                ]
            },
            "example": [[-0.0125, 0.0873, 0.0046]],
        },
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    },
}


def embed_route(
    embedder: Callable[[], Embedder],
    *,
    max_inputs: int,
    max_body_bytes: int,
    body_timeout_s: float,
    report_truncated: Callable[[int], None],
) -> Route:
    """The route `POST /embed`.

    `embedder` raises NotReady while there is none; `report_truncated` is told how many inputs of an answer were cut.
    """
    watchman = Watchman()

    async def embed(call: Call) -> Reply:
        body = await call.read_json_body(max_body_bytes, body_timeout_s)
        asked = parse(body) if len(body) <= LARGE_BODY else await asyncio.to_thread(parse, body)
        parsed_s = call.elapsed_s
        options = with_headers(asked.options, call)
        try:
            with watchman.over(call):
                answer = await embedder().embed(asked.contents, options)
        except InvalidInput as error:
            raise named(error, asked) from error
        if answer.truncated:
            report_truncated(answer.truncated)
        if OCTETS in call.accept:
            content_type, encoded = OCTETS, as_octets(answer.rows)
        elif asked.as_base64:
            content_type, encoded = JSON, await in_turns(as_base64_json, answer.rows)
        else:
            content_type, encoded = JSON, await in_turns(as_json, answer.rows)
        return Reply(200, encoded, content_type, headers_for(call, answer, content_type, parsed_s))

    return Route(
        path="/embed",
        method="POST",
        endpoint=embed,
        summary="Embed one text or many",
        description="Texts in, one vector out for each, in their order. Requests of many clients share batches; each "
        "is answered whole or not at all. Ask for `application/octet-stream` to get the raw float32 matrix.",
        answers={200: ANSWER},
        headers=REQUEST_HEADERS,
        errors=(401, 408, 413, 415, 422, 429, 500, 503, 504),
        body_schema=lambda: body_schema(max_inputs, _model_of(embedder)),
        examples=EXAMPLES,
    )


def _model_of(embedder: Callable[[], Embedder]) -> ModelInfo | None:
    try:
        return embedder().model
    except NotAccepted:
        return None


def with_headers(options: EmbedOptions, call: Call) -> EmbedOptions:
    """The options with what the request's headers ask for; raises InvalidInput that names the header."""
    if call.lane is None and call.timeout is None:
        return options
    lane = timeout_ms = None
    if call.lane is not None and (lane := LANE_NAMES.get(call.lane.lower())) is None:
        raise InvalidInput(f"X-Lane is {call.lane.decode('latin-1')!r}; it must be interactive or bulk.")
    if call.timeout is not None:
        if not TIMEOUT.fullmatch(call.timeout):
            raise InvalidInput(
                f"X-Request-Timeout-Ms is {call.timeout.decode('latin-1')!r}; it must be a whole number of "
                "milliseconds, at least 1."
            )
        timeout_ms = int(call.timeout)
    return options._replace(lane=lane, timeout_ms=timeout_ms)


def named(error: InvalidInput, asked: Asked) -> InvalidInput:
    """The embedder's error with the name of the field as this protocol has it."""
    where = error.field or asked.field
    if error.index is not None and not asked.one:
        where += f"[{error.index}]"
    return type(error)(f"{where} {error}.")


def headers_for(call: Call, answer: Embeddings, content_type: bytes, parsed_s: float) -> list[tuple[bytes, bytes]]:
    """Where the time went, how many inputs were cut, and how to read a raw matrix."""
    headers = [(b"server-timing", server_timing(answer, parsed_s, call.elapsed_s))]
    if answer.truncated:
        headers.append((b"x-truncated-inputs", b"%d" % answer.truncated))
    if content_type is OCTETS:
        headers.append((b"x-embedding-shape", b"%d,%d" % answer.rows.shape))
        headers.append((b"x-embedding-dtype", b"<f4"))
    return headers


def server_timing(answer: Embeddings, parsed_s: float, total_s: float) -> bytes:
    """The bill of a request (W3C Server Timing): `parse`, `tokenize`, `queue`, `forward` and `respond` are segments of
    its wall time, one after another, and add up to `total`; milliseconds."""
    way = answer.way
    respond_s = total_s - parsed_s - way.prepare_s - way.queue_s - way.run_s
    return BILL % (
        parsed_s * 1e3,
        way.prepare_s * 1e3,
        way.queue_s * 1e3,
        way.run_s * 1e3,
        respond_s * 1e3,
        total_s * 1e3,
        way.batch_items,
        way.batch_tokens,
        b" batches=%d" % way.batches if way.batches > 1 else b"",
        b" cached=%d" % answer.cached if answer.cached else b"",
    )
