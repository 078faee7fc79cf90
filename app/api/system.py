"""Routes about the service itself: health, readiness, information, metrics."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson

from app.api.call import JSON, Call, Reply
from app.api.routes import Route, answered

METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
OK = {"status": "ok"}


def system_routes(
    *,
    check_health: Callable[[], None],
    check_ready: Callable[[], Awaitable[None]],
    info: Callable[[], Mapping[str, Any]],
    metrics: Callable[[], bytes],
    protect_metrics: bool,
) -> list[Route]:
    """The routes; both checks raise NotReady with the reason where the answer is no."""

    async def health(call: Call) -> Reply:
        check_health()
        return _json(OK)

    async def ready(call: Call) -> Reply:
        await check_ready()
        return _json(OK)

    async def show_info(call: Call) -> Reply:
        return _json(info())

    async def show_metrics(call: Call) -> Reply:
        return Reply(200, metrics(), METRICS_TYPE)

    ok = {200: answered("Yes.", {"type": "object", "properties": {"status": {"const": "ok"}}, "required": ["status"]})}
    return [
        Route(
            "/health", "GET", health, "Is the process alive", "503 means that only a restart helps.",
            ok, (503,), open=True,
        ),
        Route(
            "/ready", "GET", ready, "May requests be sent here", "503 while loading, stopping, or failing.",
            ok, (503,), open=True,
        ),
        Route(
            "/info", "GET", show_info, "The model, and the settings in effect",
            "What is served, what was measured at warm-up, and every option as it is in force; no secrets.",
            {200: answered("What is served and how.", {"type": "object"})}, (401,),
        ),
        Route(
            "/metrics", "GET", show_metrics, "Prometheus metrics", "Every series is there from the start.",
            {200: {"description": "Every series.", "content": {"text/plain": {"schema": {"type": "string"}}}}},
            (401,) if protect_metrics else (), open=not protect_metrics,
        ),
    ]  # fmt: skip


def _json(value: Mapping[str, Any]) -> Reply:
    return Reply(200, orjson.dumps(value), JSON)
