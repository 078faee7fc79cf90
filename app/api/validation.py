"""Reading a JSON body by a pydantic model, with errors that name the field as the client sent it."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from app.errors import InvalidInput

M = TypeVar("M", bound=BaseModel)


def whole(value: Any) -> Any:
    """In JSON 2.0 is an integer too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_body(model: type[M], body: bytes) -> M:
    """The body as a model; raises InvalidInput that names the first field at fault and its problem."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = _path(problem["loc"], getattr(model, "tagged", ()))
    message = str(problem["msg"]).removeprefix("Value error, ")
    raise InvalidInput(f"{path}: {message}." if path else f"{message}.", field=path or None)


def described(model: type[BaseModel], **properties: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a model, with these schemas for some of its properties: limits known at run time alone."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    for name, one in properties.items():
        was = schema["properties"][name]
        schema["properties"][name] = {"title": was["title"], "description": was.get("description", ""), **one}
    return schema


def _path(loc: tuple[int | str, ...], tagged: tuple[str, ...]) -> str:
    """`('inputs', 'texts', 3)` as `inputs[3]`: in a field that takes several forms, the name of the form is no part of
    what the client sent."""
    if loc and loc[0] in tagged:
        loc = (loc[0], *loc[2:])
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
