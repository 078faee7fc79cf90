"""The edge itself: every request passes here, and its own routes are answered without a framework in between."""

import asyncio
import hmac
from collections.abc import Callable, Sequence

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.call import Call, ClientLeft, Reply
from app.api.errors import (
    MethodNotAllowed,
    NotFound,
    Unauthorized,
    error_body,
    headers_of,
    message_of,
    status_of,
)
from app.api.routes import Route
from app.errors import ShuttingDown

log = structlog.get_logger(__name__)

CLIENT_LEFT = 499
"""Counted for a client that left before its answer; never sent."""
OTHER = "other"
"""Route label of every path that is not ours, so that a scan cannot create series without end."""

Report = Callable[[str, int, float], None]
"""Told of each request that ended: route, status, seconds."""


class Edge:
    """The ASGI application in front of the FastAPI one.

    Routing, validation and dependency injection of a framework cost more than a small forward, so the service's own
    paths are looked up in a table and answered with ready bytes; FastAPI keeps the documentation and the rest. Here
    each request gets its id, its key is checked, whatever goes wrong becomes a JSON error, and the end is reported.
    """

    def __init__(self, app: ASGIApp, *, routes: Sequence[Route], api_key: str | None, report: Report) -> None:
        self._app = app
        self._routes = {route.path: route for route in routes}
        self._api_key = api_key.encode() if api_key is not None else None
        self._report = report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        call = Call(scope, receive)
        route = self._routes.get(scope["path"])
        label = route.path if route is not None else OTHER
        status = 500
        try:
            if route is None or not route.open:
                self._authorize(call)
            if route is None:
                status = await self._through_fastapi(call, send)
            else:
                self._check_method(route, call.scope["method"])
                reply = await route.endpoint(call)
                status = reply.status
                await reply.send(call, send)
        except ClientLeft:
            status = CLIENT_LEFT
        except asyncio.CancelledError:  # the server's time to stop is over
            status = await self._fail(call, ShuttingDown("The service has shut down; send this again elsewhere."), send)
        except Exception as error:
            status = await self._fail(call, error, send)
        finally:
            self._report(label, status, call.elapsed_s)

    def _authorize(self, call: Call) -> None:
        """Compare in constant time, so that a key cannot be guessed byte by byte."""
        if self._api_key is None:
            return
        scheme, _, key = call.authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(key.strip(), self._api_key):
            raise Unauthorized("This service needs its API key: send the header Authorization: Bearer <key>.")

    @staticmethod
    def _check_method(route: Route, method: str) -> None:
        if method != route.method and not (method == "HEAD" and route.method == "GET"):
            raise MethodNotAllowed(method, route.path, route.allowed)

    async def _through_fastapi(self, call: Call, send: Send) -> int:
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                call.replied = True
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", call.request_id)]
            await send(message)

        await self._app(call.scope, call.receive, send_with_id)
        return status

    async def _fail(self, call: Call, error: Exception, send: Send) -> int:
        """Answer with an error; where an answer has begun, the connection is lost, and so is the client."""
        if call.replied:
            log.warning("an answer could not be sent", request_id=call.request_id.decode(), error=repr(error))
            return CLIENT_LEFT
        reply = reply_for(error, call.request_id)
        if reply.status == 500:
            log.error("a request failed", request_id=call.request_id.decode(), path=call.scope["path"], exc_info=error)
        await reply.send(call, send)
        return reply.status


def reply_for(error: Exception, request_id: bytes) -> Reply:
    """The error as the client sees it."""
    status, error_type = status_of(error)
    body = error_body(message_of(error, status, request_id), error_type)
    return Reply(status, body, b"application/json", headers_of(error))


async def on_http_exception(request: Request, error: Exception) -> Response:
    """What FastAPI's own router refuses, in the same shape as every other error."""
    assert isinstance(error, HTTPException)
    path, method = request.scope["path"], request.scope["method"]
    own = (
        MethodNotAllowed(method, path, (error.headers or {}).get("Allow", "GET"))
        if error.status_code == 405
        else NotFound(f"There is nothing at {path}; GET /docs lists what there is.")
    )
    reply = reply_for(own, b"")
    return Response(reply.body, reply.status, {name.decode(): value.decode() for name, value in reply.headers})
