"""The request of `POST /embed`: its form, its validation, and its description for OpenAPI."""

from typing import Any, ClassVar

import orjson
from pydantic import ConfigDict, Field, field_validator, model_validator

from app.api.inputs import (
    INPUT_TYPE_SCHEMA,
    Inputs,
    Truncation,
    VectorForm,
    dimensions_schema,
    inputs_schema,
    is_one,
    prompt_schema,
)
from app.api.serving import Asked
from app.api.validation import described, read_body
from app.embedder import EmbedOptions, ModelInfo


class EmbedRequest(VectorForm, Truncation):
    """What to embed, and how. One of `inputs` and `text` is needed; unknown fields are ignored."""

    tagged: ClassVar = ("inputs",)
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
    prompt_name: str | None = Field(
        None, description="One of the model's prompts, put before each text; an empty name for none."
    )

    @field_validator("inputs", mode="before")
    @classmethod
    def _not_an_object(cls, inputs: Any) -> Any:
        if isinstance(inputs, dict):
            raise ValueError("is an object; sentences are compared at POST /similarity")
        return inputs

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
        one = is_one(inputs)
        options = EmbedOptions(
            normalize=self.normalize is not False,
            truncate=self.truncate,
            cut_left=self.cut_left,
            prompt_name=self.prompt_name,
            dimensions=self.dimensions,
            input_type=self.input_type,
        )
        return Asked(field, [inputs] if one else inputs, one, options, self.encoding_format == "base64")


SMALL_BODY = 4096
"""A larger body is parsed once, by the validation."""
FIELDS = EmbedRequest.model_fields.keys()
DEFAULTS = EmbedOptions()


def parse(body: bytes) -> Asked:
    """What a body asks for; raises InvalidInput that names the first field at fault and its problem."""
    return (_single_text(body) if len(body) <= SMALL_BODY else None) or read_body(EmbedRequest, body).asked()


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


def body_schema(max_inputs: int, model: ModelInfo | None) -> dict[str, Any]:
    """The schema of a request with the limits in force: what validation alone does not know, the embedder refuses."""
    schema = described(
        EmbedRequest,
        inputs=inputs_schema(max_inputs, model),
        prompt_name=prompt_schema(model),
        input_type=INPUT_TYPE_SCHEMA,
        dimensions=dimensions_schema(model),
    )
    del schema["properties"]["text"]["default"]
    return schema
