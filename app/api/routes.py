"""Routes: what answers at a path, and how OpenAPI describes it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fastapi import FastAPI, HTTPException
from fastapi.openapi.utils import get_openapi

from app.api.call import Call, Reply, StreamReply
from app.api.errors import TEI_ERROR, ErrorShape

Endpoint = Callable[[Call], Awaitable[Reply]]
StreamEndpoint = Callable[[Call], Awaitable[StreamReply]]
Schema = dict[str, Any]
"""A JSON schema."""


@dataclass(frozen=True, slots=True)
class Route:
    """One path and method; `answers` maps each status below 400 to its OpenAPI response, `errors` lists the others.

    A path may end in a parameter, `/v1/models/{model}`, which stands for the rest of it, slashes included.
    """

    path: str
    method: Literal["GET", "POST"]
    endpoint: Endpoint | StreamEndpoint
    summary: str
    description: str
    answers: Mapping[int, Mapping[str, Any]]
    errors: Sequence[int]
    body_schema: Callable[[], dict[str, Any]] | None = None
    """JSON schema of the request body, with the limits in force; asked for whenever the document is."""
    examples: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, tuple[Mapping[str, Any], str]] = field(default_factory=dict)
    """Headers that a request may have: the schema and the meaning of each."""
    query: Callable[[], Mapping[str, tuple[Mapping[str, Any], str]]] = dict
    """The same of what may stand behind the `?` of its URL, with the limits in force."""
    open: bool = False
    """Answers without the API key."""
    shape: ErrorShape = TEI_ERROR
    content_type: str = "application/json"
    """Of the request body."""
    body_required: bool = True
    label: str = ""
    """What metrics call it; its path where it has none of its own."""

    @property
    def statuses(self) -> list[int]:
        return sorted({*self.answers, *self.errors})


def answered(description: str, schema: Schema, headers: Schema | None = None) -> Schema:
    """How OpenAPI describes an answer in JSON."""
    content = {"content": {"application/json": {"schema": schema}}}
    return {"description": description, **({"headers": headers} if headers else {}), **content}


class RouteTable:
    """Finds the routes at a path, and how errors there are worded."""

    def __init__(self, routes: Sequence[Route], shapes: Mapping[str, ErrorShape]) -> None:
        """`shapes`: how errors are worded below a prefix where there is no route."""
        self._at: dict[str, dict[str, Route]] = {}
        self._below: dict[str, dict[str, Route]] = {}
        self._shapes = shapes
        for route in routes:
            fixed, parameter, _ = route.path.partition("{")
            methods = (self._below if parameter else self._at).setdefault(fixed, {})
            methods[route.method] = route
            if route.method == "GET":
                methods["HEAD"] = route

    def at(self, path: str) -> Mapping[str, Route] | None:
        """The routes at a path by method; None where there are none."""
        if (methods := self._at.get(path)) is not None:
            return methods
        if path.startswith("//"):  # a base URL that ends in a slash, and a client that adds one
            return self.at("/" + path.lstrip("/"))
        return next(
            (methods for fixed, methods in self._below.items() if path.startswith(fixed) and path != fixed), None
        )

    def shape_at(self, path: str, method: str) -> ErrorShape:
        """How an error is worded at this path."""
        if methods := self.at(path):
            return methods.get(method, next(iter(methods.values()))).shape
        return next((shape for prefix, shape in self._shapes.items() if path.startswith(prefix)), TEI_ERROR)


ERRORS = {
    401: "The API key is missing or wrong.",
    404: "The model named is not served here.",
    408: "The body did not arrive in time.",
    413: "The body is larger than the limit.",
    415: "The body is not JSON.",
    422: "An input or an option cannot be served; the message names it and the limit.",
    424: "The model served is of another kind than this path needs.",
    429: "The queue is full, or too long for the deadline; try again after `Retry-After` seconds.",
    500: "The model failed on this input, or something went wrong inside; the log has the cause.",
    503: "Not ready: loading, shutting down, or out of order; try again after `Retry-After` seconds.",
    504: "The answer was not ready within the deadline.",
}


def describe(app: FastAPI, routes: Sequence[Route]) -> None:
    """Add the routes to the application's OpenAPI document."""
    for route in routes:
        app.add_api_route(
            route.path,
            _only_described,
            name=route.endpoint.__name__,
            methods=[route.method],
            summary=route.summary,
            description=route.description,
            response_model=None,
            status_code=min(route.answers),
            responses={
                **{status: dict(answer) for status, answer in route.answers.items()},
                **{status: {"model": route.shape.schema, "description": ERRORS[status]} for status in route.errors},
            },
        )

    def document() -> dict[str, Any]:
        described = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for route in routes:
            if route.body_schema is not None:
                schema = route.body_schema()
                described["components"]["schemas"].update(schema.pop("$defs", {}))
                content = {"schema": schema, "examples": dict(route.examples)}
                body = {"required": route.body_required, "content": {route.content_type: content}}
                described["paths"][route.path][route.method.lower()]["requestBody"] = body
            parameters = [
                {"name": name, "in": place, "required": False, "schema": schema, "description": meaning}
                for place, those in (("header", route.headers), ("query", route.query()))
                for name, (schema, meaning) in those.items()
            ]
            if "{" in route.path:
                name = route.path[route.path.index("{") + 1 : -1]
                parameters.append({"name": name, "in": "path", "required": True, "schema": {"type": "string"}})
            if parameters:
                described["paths"][route.path][route.method.lower()]["parameters"] = parameters
        return described

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's documented way to make one's own


async def _only_described() -> None:
    """Stands for a route in FastAPI's document; the edge answers it before FastAPI is asked."""
    raise HTTPException(404)
