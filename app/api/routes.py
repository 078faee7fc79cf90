"""Routes: what answers at a path, and how OpenAPI describes it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fastapi import FastAPI, HTTPException
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from app.api.call import Call, Reply

Endpoint = Callable[[Call], Awaitable[Reply]]


class ErrorBody(BaseModel):
    """Every error, on every path."""

    error: str
    error_type: str


@dataclass(frozen=True, slots=True)
class Route:
    """One path and method; `answers` maps each status below 400 to its OpenAPI response, `errors` lists the others."""

    path: str
    method: Literal["GET", "POST"]
    endpoint: Endpoint
    summary: str
    description: str
    answers: Mapping[int, Mapping[str, Any]]
    errors: Sequence[int]
    body_schema: Callable[[], dict[str, Any]] | None = None
    """JSON schema of the request body, with the limits in force; asked for whenever the document is."""
    examples: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, tuple[Mapping[str, Any], str]] = field(default_factory=dict)
    """Headers that a request may have: the schema and the meaning of each."""
    open: bool = False
    """Answers without the API key."""

    @property
    def allowed(self) -> str:
        return "GET, HEAD" if self.method == "GET" else self.method

    @property
    def statuses(self) -> list[int]:
        return sorted({*self.answers, *self.errors})


ERRORS = {
    401: "The API key is missing or wrong.",
    408: "The body did not arrive in time.",
    413: "The body is larger than the limit.",
    415: "The body is not JSON.",
    422: "An input or an option cannot be served; the message names it and the limit.",
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
                **{status: {"model": ErrorBody, "description": ERRORS[status]} for status in route.errors},
            },
        )

    def document() -> dict[str, Any]:
        described = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for route in routes:
            if route.body_schema is not None:
                content = {"schema": route.body_schema(), "examples": dict(route.examples)}
                body = {"required": True, "content": {"application/json": content}}
                described["paths"][route.path][route.method.lower()]["requestBody"] = body
            if route.headers:
                described["paths"][route.path][route.method.lower()]["parameters"] = [
                    {"name": name, "in": "header", "required": False, "schema": schema, "description": meaning}
                    for name, (schema, meaning) in route.headers.items()
                ]
        return described

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's documented way to make one's own


async def _only_described() -> None:
    """Stands for a route in FastAPI's document; the edge answers it before FastAPI is asked."""
    raise HTTPException(404)
