"""`POST /embed`: the native protocol, wire-compatible with text-embeddings-inference's route of that name."""

from typing import Any

from app.api.bill import HEADERS
from app.api.call import Call, Reply
from app.api.embed_request import body_schema, parse
from app.api.encoders import as_base64_json, as_json, as_octets, in_turns
from app.api.routes import Endpoint, Route
from app.api.serving import REQUEST_HEADERS, WORK_ERRORS, Serving

OCTETS = b"application/octet-stream"

EXAMPLES = {
    "one text": {"value": {"inputs": "Where is my card?"}},
    "several texts": {"value": {"inputs": ["Where is my card?", "My card has not arrived."]}},
    "short vectors in base64": {
        "value": {"inputs": "Where is my card?", "dimensions": 64, "encoding_format": "base64"}
    },
    "the simplest": {"value": {"text": "Where is my card?"}},
}
ANSWER: dict[str, Any] = {
    "description": "One row for each input, in their order.",
    "headers": {
        **HEADERS,
        "X-Embedding-Shape": {"schema": {"type": "string"}, "description": "Rows and columns, of a raw matrix."},
        "X-Embedding-Dtype": {"schema": {"type": "string"}, "description": "`<f4`, of a raw matrix."},
    },
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


def embed_endpoint(serving: Serving) -> Endpoint:
    """Answers a request to embed with the rows alone: a JSON list of them, or the raw matrix."""

    async def embed(call: Call) -> Reply:
        asked = await serving.read(call, parse)
        rows, bill = await serving.embed(call, asked)
        if OCTETS in call.accept:
            shape = (b"x-embedding-shape", b"%d,%d" % rows.shape)
            body = as_octets(rows)
            return serving.answer(call, bill, body, OCTETS, [shape, (b"x-embedding-dtype", b"<f4")])
        body = await in_turns(as_base64_json if asked.as_base64 else as_json, rows)
        return serving.answer(call, bill, body)

    return embed


def embed_route(serving: Serving) -> Route:
    """The route `POST /embed`."""
    return Route(
        path="/embed",
        method="POST",
        endpoint=embed_endpoint(serving),
        summary="Embed one text or many",
        description="Texts in, one vector out for each, in their order. Requests of many clients share batches; each "
        "is answered whole or not at all. Ask for `application/octet-stream` to get the raw float32 matrix.",
        answers={200: ANSWER},
        headers=REQUEST_HEADERS,
        errors=WORK_ERRORS,
        body_schema=lambda: body_schema(serving.max_inputs, serving.model()),
        examples=EXAMPLES,
    )
