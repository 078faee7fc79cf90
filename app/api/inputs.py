"""What several protocols accept as inputs: a text, texts, or token ids."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from app.api.validation import whole
from app.embedder import ModelInfo
from app.prompts import INPUT_TYPES

INPUT_TYPE_SCHEMA: dict[str, Any] = {"anyOf": [{"enum": list(INPUT_TYPES)}, {"type": "null"}]}


def _kind(inputs: Any) -> str:
    """Which of the accepted forms a value means to be, so that errors speak of that form alone."""
    if isinstance(inputs, list) and inputs:
        first = inputs[0]
        return "ids" if isinstance(first, int | float) else "id_lists" if isinstance(first, list) else "texts"
    return "texts" if isinstance(inputs, list) else "text"


TokenId = Annotated[int, BeforeValidator(whole)]
Dimensions = Annotated[int, Field(ge=1), BeforeValidator(whole)]
Inputs = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[list[str], Field(fail_fast=True), Tag("texts")]
    | Annotated[list[TokenId], Field(fail_fast=True), Tag("ids")]
    | Annotated[list[Annotated[list[TokenId], Field(fail_fast=True)]], Field(fail_fast=True), Tag("id_lists")],
    Discriminator(_kind),
]


Texts = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[str], Field(fail_fast=True), Tag("texts")],
    Discriminator(lambda inputs: "texts" if isinstance(inputs, list) else "text"),
]


class VectorForm(BaseModel):
    """What vectors are made of, and how they are sent; a part of several requests."""

    model_config = ConfigDict(strict=True)

    input_type: str | None = Field(
        None,
        description="What the inputs are, `query` or `document` for instance: the model's prompt for that, where it "
        "has one, is put before each text.",
    )
    dimensions: Dimensions | None = Field(
        None, description="Keep this many leading dimensions, then scale to unit length again."
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        "float", description="Rows as lists of numbers, or as base64 of their little-endian float32 bytes."
    )


class Truncation(BaseModel):
    """What to do with inputs longer than the model reads; a part of several requests."""

    model_config = ConfigDict(strict=True)

    truncate: bool | None = Field(
        None,
        description="Cut inputs longer than the model reads; false refuses them. The service's setting by default.",
    )
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = Field(
        "right", description="The end that is cut off."
    )

    @property
    def cut_left(self) -> bool:
        """Whether it is the left end that is cut off."""
        return self.truncation_direction in ("left", "Left")


def is_one(inputs: Any) -> bool:
    """Whether `inputs` is a single input rather than a list of them."""
    return isinstance(inputs, str) or (bool(inputs) and isinstance(inputs[0], int))


def text_schema(max_inputs: int, min_length: int = 1) -> list[dict[str, Any]]:
    """The schemas of a text and of a list of texts."""
    text = {"type": "string", "minLength": min_length}
    return [text, {"type": "array", "minItems": 1, "maxItems": max_inputs, "items": text}]


def inputs_schema(max_inputs: int, model: ModelInfo | None) -> dict[str, Any]:
    """The schema of inputs with the limits in force: what validation alone does not know, the embedder refuses."""
    return {"anyOf": [*text_schema(max_inputs), *ids_schema(max_inputs, model)["anyOf"]]}


def ids_schema(max_inputs: int, model: ModelInfo | None) -> dict[str, Any]:
    """The schema of token ids: a list of them, or a list of such lists."""
    token_id: dict[str, Any] = {"type": "integer", "minimum": 0}
    if model is not None:
        token_id["maximum"] = model.vocabulary_size - 1
    ids = {"type": "array", "minItems": 1, "items": token_id}
    return {"anyOf": [ids, {"type": "array", "minItems": 1, "maxItems": max_inputs, "items": ids}]}


def prompt_schema(model: ModelInfo | None) -> dict[str, Any]:
    """The schema of a prompt's name: one of the model's, or empty for none."""
    return {"anyOf": [{"enum": ["", *sorted(model.prompts if model is not None else ())]}, {"type": "null"}]}


def dimensions_schema(model: ModelInfo | None) -> dict[str, Any]:
    """The schema of how many dimensions are wanted."""
    number: dict[str, Any] = {"type": "integer", "minimum": 1}
    if model is not None:
        number["maximum"] = model.dimension
    return {"anyOf": [number, {"type": "null"}]}
