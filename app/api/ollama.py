"""Ollama's protocol, as far as it is about embeddings.

Reference: https://github.com/ollama/ollama/blob/main/docs/api.md
"""

from datetime import UTC, datetime
from typing import ClassVar

import orjson
from pydantic import BaseModel, ConfigDict, Field

from app.api.bill import HEADERS
from app.api.call import JSON, Call, Reply
from app.api.encoders import as_json, in_turns
from app.api.errors import ErrorShape, Problem
from app.api.inputs import Dimensions, Texts, dimensions_schema, text_schema
from app.api.routes import Route, Schema, answered
from app.api.serving import REQUEST_HEADERS, WORK_ERRORS, Asked, Serving
from app.api.validation import described, read_body
from app.embedder import EmbedOptions


class OllamaError(BaseModel):
    """An error, as Ollama words it."""

    error: str


def _error_body(problem: Problem) -> object:
    return {"error": problem.message}


OLLAMA_ERROR = ErrorShape(_error_body, OllamaError)


class EmbedRequest(BaseModel):
    """What to embed; `keep_alive` and `options` are accepted and mean nothing here, since the model stays loaded."""

    tagged: ClassVar = ("input",)
    model_config = ConfigDict(strict=True)

    model: str | None = Field(None, description="Which model is meant; the answer says which one it was.")
    input: Texts = Field(description="A text, or a list of texts.")
    truncate: bool | None = Field(True, description="Cut inputs longer than the model reads; false refuses them.")
    dimensions: Dimensions | None = Field(
        None, description="Keep this many leading dimensions, then scale to unit length again."
    )

    def asked(self) -> Asked:
        """The same in the embedder's terms."""
        one = isinstance(self.input, str)
        options = EmbedOptions(truncate=self.truncate is not False, dimensions=self.dimensions)
        return Asked("input", [self.input] if isinstance(self.input, str) else self.input, one, options)


class EmbeddingsRequest(BaseModel):
    """What to embed, in the older form."""

    model_config = ConfigDict(strict=True)

    model: str | None = Field(None, description="Which model is meant.")
    prompt: str = Field(description="A text.")


def ollama_routes(serving: Serving, version: str) -> list[Route]:
    """The routes."""
    started = datetime.now(UTC).isoformat()

    async def embed(call: Call) -> Reply:
        request = await serving.read(call, lambda body: read_body(EmbedRequest, body))
        model = serving.served_name(request.model)
        rows, bill = await serving.embed(call, request.asked())
        body = b'{"model":%b,"embeddings":%b,"total_duration":%d,"load_duration":0,"prompt_eval_count":%d}' % (
            orjson.dumps(model), await in_turns(as_json, rows), call.elapsed_s * 1e9, bill.tokens
        )  # fmt: skip
        return serving.answer(call, bill, body)

    async def embeddings(call: Call) -> Reply:
        request = await serving.read(call, lambda body: read_body(EmbeddingsRequest, body))
        serving.served_name(request.model)
        rows, bill = await serving.embed(call, Asked("prompt", [request.prompt], True, EmbedOptions()))
        return serving.answer(call, bill, b'{"embedding":%b}' % as_json(rows)[1:-1])

    async def tags(call: Call) -> Reply:
        model = serving.loaded_model()
        parameters = model.details.get("parameters")
        about = {
            "name": model.name,
            "model": model.name,
            "modified_at": started,
            "size": parameters * (4 if model.dtype == "float32" else 2) if parameters else 0,
            "digest": "",
            "details": {
                "format": "safetensors",
                "family": model.details.get("architecture", ""),
                "parameter_size": f"{parameters / 1e6:.1f}M" if parameters else "",
                "quantization_level": model.dtype,
            },
        }
        return Reply(200, orjson.dumps({"models": [about]}), JSON)

    async def show_version(call: Call) -> Reply:
        return Reply(200, orjson.dumps({"version": version}), JSON)

    def n() -> int:
        return serving.max_inputs

    return [
        Route(
            "/api/embed", "POST", embed, "Embed one text or many, as Ollama does",
            "Ollama's embeddings: point its official clients here with `host`.",
            {200: answered("The rows, and what they cost in nanoseconds and tokens.", _EMBEDDINGS, HEADERS)},
            (*WORK_ERRORS, 404), headers=REQUEST_HEADERS, shape=OLLAMA_ERROR,
            body_schema=lambda: described(
                EmbedRequest, input={"anyOf": text_schema(n())}, dimensions=dimensions_schema(serving.model())
            ),
            examples={"one text": {"value": {"model": "all-minilm", "input": "Where is my card?"}}},
        ),
        Route(
            "/api/embeddings", "POST", embeddings, "Embed one text, in Ollama's older form", "One row.",
            {200: answered("The row.", _object(embedding={"type": "array", "items": {"type": "number"}}), HEADERS)},
            (*WORK_ERRORS, 404), headers=REQUEST_HEADERS, shape=OLLAMA_ERROR,
            body_schema=lambda: described(EmbeddingsRequest, prompt=text_schema(n())[0]),
            examples={"one text": {"value": {"model": "all-minilm", "prompt": "Where is my card?"}}},
        ),
        Route(
            "/api/tags", "GET", tags, "The model served, as Ollama lists models", "One entry.",
            {200: answered("The list.", _object(models={"type": "array", "items": {"type": "object"}}))},
            (401, 503), shape=OLLAMA_ERROR,
        ),
        Route(
            "/api/version", "GET", show_version, "The version", "Convoy's own, in Ollama's form.",
            {200: answered("The version.", _object(version={"type": "string"}))}, (401,), shape=OLLAMA_ERROR,
        ),
    ]  # fmt: skip


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


_EMBEDDINGS = _object(
    model={"type": "string"},
    embeddings={"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    total_duration={"type": "integer"},
    load_duration={"type": "integer"},
    prompt_eval_count={"type": "integer"},
)
