"""`POST /embed`: the native protocol, wire-compatible with text-embeddings-inference's route of that name."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import orjson
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from app.api.call import Call, Reply
from app.api.encoders import as_base64_json, as_json, as_octets, in_turns
from app.api.routes import Route
from app.api.watch import Watchman
from app.embedder import Content, Embedder, Embeddings, EmbedOptions, ModelInfo
from app.errors import InvalidInput, NotAccepted

OCTETS = b"application/octet-stream"
JSON = b"application/json"
BILL = (
    b"parse;dur=%.3f, tokenize;dur=%.3f, queue;dur=%.3f, forward;dur=%.3f, respond;dur=%.3f, total;dur=%.3f, "
    b'batch;desc="items=%d tokens=%d%b"'
)


def _kind(inputs: Any) -> str:
    """Which of the accepted forms a value means to be, so that errors speak of that form alone."""
    if isinstance(inputs, list) and inputs:
        first = inputs[0]
        return "ids" if isinstance(first, int | float) else "id_lists" if isinstance(first, list) else "texts"
    return "texts" if isinstance(inputs, list) else "text"


def _whole(value: Any) -> Any:
    """In JSON 2.0 is an integer too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


TokenId = Annotated[int, BeforeValidator(_whole)]
Dimensions = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
Inputs = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[list[str], Field(fail_fast=True), Tag("texts")]
    | Annotated[list[TokenId], Field(fail_fast=True), Tag("ids")]
    | Annotated[list[Annotated[list[TokenId], Field(fail_fast=True)]], Field(fail_fast=True), Tag("id_lists")],
    Discriminator(_kind),
]


class EmbedRequest(BaseModel):
    """What to embed, and how. One of `inputs` and `text` is needed; unknown fields are ignored."""

    model_config = ConfigDict(
        strict=True, json_schema_extra={"oneOf": [{"required": ["inputs"]}, {"required": ["text"]}]}
    )

    inputs: Inputs = Field(
        default="",  # tells nothing: what counts is whether the field was sent, see _one_of_both
        description="A text, a list of texts, or token ids of the model's own vocabulary with their special tokens: "
        "one list, or a list of lists.",
    )
    text: str = Field(
        default="",
        min_length=1,
        description="One text, for the simplest client; instead of `inputs`.",
    )
    normalize: bool | None = Field(True, description="Scale vectors to unit length.")
    truncate: bool | None = Field(
        None,
        description="Cut inputs longer than the model reads; false refuses them. The service's setting by default.",
    )
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = Field(
        "right", description="The end that is cut off."
    )
    prompt_name: str | None = Field(None, description="One of the model's prompts, put before each text.")
    dimensions: Dimensions | None = Field(
        None, description="Keep this many leading dimensions, then scale to unit length again."
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        "float", description="Rows as lists of numbers, or as base64 of their little-endian float32 bytes."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> "EmbedRequest":
        given = self.model_fields_set & {"inputs", "text"}
        if len(given) != 1:
            what = "both are given" if given else "neither is given"
            raise ValueError(f"send either inputs or text; {what}")
        return self

    def asked(self) -> "Asked":
        """The same in the embedder's terms."""
        field = "inputs" if "inputs" in self.model_fields_set else "text"
        inputs: Any = self.inputs if field == "inputs" else self.text
        one = isinstance(inputs, str) or (bool(inputs) and isinstance(inputs[0], int))
        options = EmbedOptions(
            normalize=self.normalize is not False,
            truncate=self.truncate,
            cut_left=self.truncation_direction in ("left", "Left"),
            prompt_name=self.prompt_name,
            dimensions=self.dimensions,
        )
        return Asked(field, [inputs] if one else inputs, one, options, self.encoding_format == "base64")


class Asked(NamedTuple):
    """A valid request: its inputs as a list, how they were sent, and what is wanted of them."""

    field: str
    contents: Sequence[Content]
    one: bool
    options: EmbedOptions
    as_base64: bool


LARGE_BODY = 262_144
"""A larger body is parsed on another thread: the loop shares the interpreter with it, but goes on turning."""
SMALL_BODY = 4096
"""A larger body is parsed once, by the validation."""
FIELDS = EmbedRequest.model_fields.keys()
DEFAULTS = EmbedOptions()

EXAMPLES = {
    "one text": {"value": {"inputs": "Where is my card?"}},
    "several texts": {"value": {"inputs": ["Where is my card?", "My card has not arrived."]}},
    "short vectors in base64": {
        "value": {"inputs": "Where is my card?", "dimensions": 64, "encoding_format": "base64"}
    },
    "the simplest": {"value": {"text": "Where is my card?"}},
}
HEADERS = {
    "X-Request-Id": {"schema": {"type": "string"}, "description": "The client's own, or a new one."},
    "Server-Timing": {"schema": {"type": "string"}, "description": "Where the time of this request went, in ms."},
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
    """The route `POST /embed`; `embedder` raises NotReady while there is none, `report_truncated` is
    told how many inputs of an answer were cut."""

    watchman = Watchman()

    async def embed(call: Call) -> Reply:
        body = await call.read_json_body(max_body_bytes, body_timeout_s)
        asked = parse(body) if len(body) <= LARGE_BODY else await asyncio.to_thread(parse, body)
        parsed_s = call.elapsed_s
        try:
            with watchman.over(call):
                answer = await embedder().embed(asked.contents, asked.options)
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
        answers={200: ANSWER},
        errors=(401, 408, 413, 415, 422, 429, 500, 503, 504),
        body_schema=lambda: body_schema(max_inputs, _model_of(embedder)),
        examples=EXAMPLES,
    )


def body_schema(max_inputs: int, model: ModelInfo | None) -> dict[str, Any]:
    """The schema of a request with the limits in force: what validation alone does not know, the embedder refuses."""
    schema = EmbedRequest.model_json_schema()
    properties = schema["properties"]
    text: dict[str, Any] = {"type": "string", "minLength": 1}
    token_id: dict[str, Any] = {"type": "integer", "minimum": 0}
    if model is not None:
        token_id["maximum"] = model.vocabulary_size - 1
        properties["dimensions"]["anyOf"][0]["maximum"] = model.dimension
        properties["prompt_name"]["anyOf"] = [
            *([{"enum": sorted(model.prompts)}] if model.prompts else []),
            {"type": "null"},
        ]
    ids = {"type": "array", "minItems": 1, "items": token_id}
    lists = [{"type": "array", "minItems": 1, "maxItems": max_inputs, "items": one} for one in (text, ids)]
    described = {"title": "Inputs", "description": properties["inputs"]["description"]}
    properties["inputs"] = {**described, "anyOf": [text, ids, *lists]}
    del properties["text"]["default"]
    return schema


def _model_of(embedder: Callable[[], Embedder]) -> ModelInfo | None:
    try:
        return embedder().model
    except NotAccepted:
        return None


def parse(body: bytes) -> Asked:
    """What a body asks for; raises InvalidInput that names the first field at fault and its problem."""
    return (_single_text(body) if len(body) <= SMALL_BODY else None) or _validated(body)


def _single_text(body: bytes) -> Asked | None:
    """The most frequent request, one text and no options, without the cost of validating what is not there; None for
    every other, good or bad."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    text = fields.get("inputs") if isinstance(fields, dict) else None
    if not isinstance(text, str) or len(FIELDS & fields.keys()) != 1:
        return None
    return Asked("inputs", [text], True, DEFAULTS, False)


def _validated(body: bytes) -> Asked:
    try:
        return EmbedRequest.model_validate_json(body).asked()
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = _path(problem["loc"])
    message = str(problem["msg"]).removeprefix("Value error, ")
    raise InvalidInput(f"{path}: {message}." if path else f"{message}.")


def _path(loc: tuple[int | str, ...]) -> str:
    """`('inputs', 'texts', 3)` as `inputs[3]`: the name of the form is no part of what the client sent."""
    if loc and loc[0] == "inputs":
        loc = (loc[0], *loc[2:])
    return "".join(part if isinstance(part, str) else f"[{part}]" for part in loc)


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
    )
