"""OpenAI's protocol: `POST /v1/embeddings` and `GET /v1/models`, as its official clients use them.

Reference: https://platform.openai.com/docs/api-reference/embeddings and the errors of the same reference.
"""

import time
from functools import partial
from typing import Any, ClassVar

import orjson
from pydantic import BaseModel, Field

from app.api.bill import HEADERS
from app.api.call import JSON, Call, Reply
from app.api.encoders import Matrix, as_base64, in_turns
from app.api.errors import ErrorShape, Problem
from app.api.inputs import (
    INPUT_TYPE_SCHEMA,
    Inputs,
    VectorForm,
    dimensions_schema,
    inputs_schema,
    is_one,
    text_schema,
)
from app.api.routes import Route, Schema, answered
from app.api.serving import REQUEST_HEADERS, WORK_ERRORS, Asked, Serving, is_name_of
from app.api.validation import described, read_body
from app.embedder import EmbedOptions, ModelInfo
from app.errors import InvalidInput, UnknownModel

FOREIGN_IDS = (
    "input holds token ids. They are usually those of OpenAI's own tokenizer, of which this model would make nonsense: "
    "send texts instead (LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False)). Ids of this model's own "
    "vocabulary are taken with --openai-token-ids model."
)


class OpenAIErrorDetail(BaseModel):
    """What is wrong; `param` is the field at fault."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    """An error, as OpenAI words it."""

    error: OpenAIErrorDetail


KINDS: dict[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("server_error", "service_unavailable"),
    504: ("server_error", "timeout"),
}
"""Status to `type` and `code`; others below 500 are the request's fault, the rest the server's."""


def _error_body(problem: Problem) -> object:
    kind, code = KINDS.get(problem.status, ("invalid_request_error" if problem.status < 500 else "server_error", None))
    if problem.status == 404:
        code = "model_not_found" if problem.field == "model" else "unknown_url"
    return {"error": {"message": problem.message, "type": kind, "param": problem.field, "code": code}}


OPENAI_ERROR = ErrorShape(_error_body, OpenAIError)


class EmbeddingsRequest(VectorForm):
    """What to embed, and how; unknown fields are ignored, and so is `user`."""

    tagged: ClassVar = ("input",)

    input: Inputs = Field(description="A text, or a list of texts.")
    model: str | None = Field(None, description="Which model is meant; the answer says which one it was.")


def parse(body: bytes, *, takes_ids: bool) -> Asked:
    """What a body asks for; raises InvalidInput that names the first field at fault and its problem."""
    request = read_body(EmbeddingsRequest, body)
    contents: Any = [request.input] if is_one(request.input) else request.input
    if not takes_ids and any(not isinstance(one, str) for one in contents):
        raise InvalidInput(FOREIGN_IDS, field="input")
    options = EmbedOptions(dimensions=request.dimensions, input_type=request.input_type)
    as_base64 = request.encoding_format == "base64"
    return Asked("input", contents, is_one(request.input), options, as_base64, request.model)


def _as_data(rows: Matrix, first: int, *, as_text: bool) -> bytes:
    """A JSON list of `embedding` objects, the first of which has the index `first`."""
    vectors: Any = as_base64(rows) if as_text else rows
    data = [{"object": "embedding", "index": first + i, "embedding": vector} for i, vector in enumerate(vectors)]
    return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)


def openai_routes(serving: Serving, *, takes_ids: bool) -> list[Route]:
    """The routes; `takes_ids`: lists of integers are this model's token ids."""
    started = int(time.time())

    async def create_embeddings(call: Call) -> Reply:
        asked = await serving.read(call, partial(parse, takes_ids=takes_ids))
        model = serving.served_name(asked.model)
        rows, bill = await serving.embed(call, asked)
        data = await in_turns(partial(_as_data, as_text=asked.as_base64), rows)
        body = b'{"object":"list","data":%b,"model":%b,"usage":{"prompt_tokens":%d,"total_tokens":%d}}' % (
            data, orjson.dumps(model), bill.tokens, bill.tokens
        )  # fmt: skip
        return serving.answer(call, bill, body)

    def described() -> dict[str, Any]:
        model = serving.loaded_model()
        owner, slash, _ = model.name.rpartition("/")
        return {"id": model.name, "object": "model", "created": started, "owned_by": owner if slash else "convoy"}

    async def list_models(call: Call) -> Reply:
        return Reply(200, orjson.dumps({"object": "list", "data": [described()]}), JSON)

    async def retrieve_model(call: Call) -> Reply:
        name = call.scope["path"].partition("/models/")[2]
        model = described()
        if not is_name_of(name, model["id"]):
            raise UnknownModel(f"The model {name!r} is not served here; this service has {model['id']!r}.")
        return Reply(200, orjson.dumps(model), JSON)

    def embeddings_at(path: str) -> Route:
        return Route(
            path=path,
            method="POST",
            endpoint=create_embeddings,
            summary="Embed one text or many, as OpenAI does",
            description="OpenAI's embeddings: point its official clients here with `base_url`.",
            answers={200: _ANSWER},
            headers=REQUEST_HEADERS,
            errors=(*WORK_ERRORS, 404),
            body_schema=lambda: body_schema(serving.max_inputs, serving.model(), takes_ids=takes_ids),
            examples=_EXAMPLES,
            shape=OPENAI_ERROR,
        )

    def models_at(path: str) -> list[Route]:
        return [
            Route(
                path, "GET", list_models, "The model served, as OpenAI lists models", "One entry.",
                {200: answered("The list.", _MODEL_LIST)}, (401, 503), shape=OPENAI_ERROR,
            ),
            Route(
                path + "/{model}", "GET", retrieve_model, "One model, as OpenAI describes it",
                "The model served, by its name with or without the owner; 404 for every other.",
                {200: answered("The model.", _MODEL)}, (401, 404, 503), shape=OPENAI_ERROR,
            ),
        ]  # fmt: skip

    return [
        embeddings_at("/v1/embeddings"),
        embeddings_at("/embeddings"),
        *models_at("/v1/models"),
        *models_at("/models"),
    ]


def body_schema(max_inputs: int, model: ModelInfo | None, *, takes_ids: bool) -> Schema:
    """The schema of a request with the limits in force."""
    accepted = inputs_schema(max_inputs, model) if takes_ids else {"anyOf": text_schema(max_inputs)}
    return described(
        EmbeddingsRequest, input=accepted, input_type=INPUT_TYPE_SCHEMA, dimensions=dimensions_schema(model)
    )


_EXAMPLES = {
    "one text": {"value": {"input": "Where is my card?", "model": "all-MiniLM-L6-v2"}},
    "several texts": {"value": {"input": ["Where is my card?", "My card has not arrived."]}},
    "as the official clients ask": {"value": {"input": ["Where is my card?"], "encoding_format": "base64"}},
}
_ANSWER = answered(
    "The list of embeddings.",
    {
        "type": "object",
        "required": ["object", "data", "model", "usage"],
        "properties": {
            "object": {"const": "list"},
            "data": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["object", "index", "embedding"],
                    "properties": {
                        "object": {"const": "embedding"},
                        "index": {"type": "integer"},
                        "embedding": {
                            "anyOf": [
                                {"type": "array", "items": {"type": "number"}},
                                {"type": "string", "contentEncoding": "base64"},
                            ]
                        },
                    },
                },
            },
            "model": {"type": "string"},
            "usage": {
                "type": "object",
                "required": ["prompt_tokens", "total_tokens"],
                "properties": {"prompt_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"}},
            },
        },
    },
    headers=HEADERS,
)
_MODEL: dict[str, Any] = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "model"},
        "created": {"type": "integer"},
        "owned_by": {"type": "string"},
    },
}
_MODEL_LIST: dict[str, Any] = {
    "type": "object",
    "required": ["object", "data"],
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": _MODEL}},
}
