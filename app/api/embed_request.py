"""The request of `POST /embed`: its form, its validation, and its description for OpenAPI."""

from collections.abc import Sequence
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

from app.embedder import Content, EmbedOptions, ModelInfo
from app.errors import InvalidInput


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


SMALL_BODY = 4096
"""A larger body is parsed once, by the validation."""
FIELDS = EmbedRequest.model_fields.keys()
DEFAULTS = EmbedOptions()


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
