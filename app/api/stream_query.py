"""What the query string of a stream asks for: options that hold for all its lines."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from app.api.inputs import INPUT_TYPE_SCHEMA, dimensions_schema, prompt_schema
from app.embedder import EmbedOptions, LaneName, ModelInfo
from app.errors import InvalidInput

BOOLEANS = {"true": True, "false": False}
DIRECTIONS = {"left": True, "right": False, "Left": True, "Right": False}
"""Whether it is the left end that is cut off."""
FORMATS = {"float": False, "base64": True}
DIMENSIONS = re.compile(r"0*[1-9][0-9]{0,8}(\.0*)?")


class Wanted(NamedTuple):
    """The options of a stream, and the form of its answers."""

    options: EmbedOptions
    as_base64: bool


def query_schema(model: ModelInfo | None) -> Mapping[str, tuple[dict[str, Any], str]]:
    """The schema and the meaning of each parameter, with the limits in force."""
    return {
        "normalize": (_enum(BOOLEANS), "Scale vectors to unit length; `true` by default."),
        "truncate": (
            _enum(BOOLEANS),
            "Cut texts longer than the model reads; `false` refuses them. The service's setting by default.",
        ),
        "truncation_direction": (_enum(DIRECTIONS), "The end that is cut off; `right` by default."),
        "prompt_name": (
            prompt_schema(model)["anyOf"][0],
            "One of the model's prompts, put before each text; an empty name for none.",
        ),
        "input_type": (
            INPUT_TYPE_SCHEMA["anyOf"][0],
            "What the texts are: the model's prompt for that, where it has one, is put before each.",
        ),
        "dimensions": (
            dimensions_schema(model)["anyOf"][0],
            "Keep this many leading dimensions, then scale to unit length again.",
        ),
        "encoding_format": (
            _enum(FORMATS),
            "`float`, the default: each vector as numbers, in `embedding`. `base64`: its little-endian float32 bytes, "
            "in `base64`.",
        ),
    }


def read_query(query: bytes, lane: LaneName) -> Wanted:
    """Raises InvalidInput that names the first parameter at fault; what is not known is ignored."""
    given: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in given:
            raise InvalidInput(f"{name} is given twice; say it once.", field=name)
        given[name] = value
    dimensions = given.get("dimensions")
    if dimensions is not None and not DIMENSIONS.fullmatch(dimensions):
        raise InvalidInput(f"dimensions is {dimensions!r}; it must be a whole number, at least 1.", field="dimensions")
    options = EmbedOptions(
        normalize=_choice(given, "normalize", BOOLEANS, default=True),
        truncate=_choice(given, "truncate", BOOLEANS, default=None),
        cut_left=_choice(given, "truncation_direction", DIRECTIONS, default=False),
        prompt_name=given.get("prompt_name"),
        dimensions=int(float(dimensions)) if dimensions is not None else None,
        input_type=given.get("input_type"),
        lane=lane,
    )
    return Wanted(options, _choice(given, "encoding_format", FORMATS, default=False))


def _choice(given: Mapping[str, str], name: str, choices: Mapping[str, bool], default: Any) -> Any:
    value = given.get(name)
    if value is None:
        return default
    if value not in choices:
        raise InvalidInput(f"{name} is {value!r}; it must be one of {', '.join(choices)}.", field=name)
    return choices[value]


def _enum(choices: Mapping[str, bool]) -> dict[str, Any]:
    return {"type": "string", "enum": list(choices)}
