"""The edge itself: every request passes here, and its own routes are answered without a framework in between."""

import asyncio
import hmac
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.call import Call, ClientLeft, Reply
from app.api.errors import (
    ErrorShape,
    MethodNotAllowed,
    NotFound,
    Unauthorized,
    error_body,
    headers_of,
    problem_of,
)
from app.api.routes import RouteTable
from app.errors import ShuttingDown

log = structlog.get_logger(__name__)

CLIENT_LEFT = 499
"""Counted for a client that left before its answer; never sent."""
OTHER = "other"
"""Route label of every path that is not ours, so that a scan cannot create series without end."""

Report = Callable[[str, int, float], None]
"""Told of each request that ended: route, status, seconds."""
Trace = Callable[[Call, str], AbstractContextManager[None]]
"""Takes the call and its route."""
NO_TRACE = nullcontext()


class Edge:
    """The ASGI application in front of the FastAPI one.

    Routing, validation and dependency injection of a framework cost more than a small forward, so the service's own
    paths are looked up in a table and answered with ready bytes; FastAPI keeps the documentation and the rest. Here
    each request gets its id, its key is checked, whatever goes wrong becomes a JSON error, and the end is reported.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        routes: RouteTable,
        api_key: str | None,
        compress_min_bytes: int,
        report: Report,
        trace: Trace | None = None,
    ) -> None:
        """Answers of at least `compress_min_bytes` bytes are compressed for clients that take that; 0 for none. `trace`
        is a context around each request."""
        self._app = app
        self._routes = routes
        self._api_key = api_key.encode() if api_key is not None else None
        self._compress_min_bytes = compress_min_bytes or sys.maxsize
        self._report = report
        self._trace = trace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        call = Call(scope, receive)
        methods = self._routes.at(scope["path"])
        route = methods.get(scope["method"]) if methods else None
        known = route or (next(iter(methods.values())) if methods else None)
        label = (known.label or known.path) if known is not None else OTHER
        with self._trace(call, label) if self._trace is not None else NO_TRACE:
            call.status = 500
            try:
                if route is None or not route.open:
                    self._authorize(call)
                if route is None:
                    if methods:
                        raise MethodNotAllowed(scope["method"], scope["path"], ", ".join(methods))
                    call.status = await self._through_fastapi(call, send)
                else:
                    reply = await route.endpoint(call)
                    if isinstance(reply, Reply) and len(reply.body) >= self._compress_min_bytes:
                        reply = await reply.compressed(call)
                    call.status = await reply.send(call, send)
            except ClientLeft:
                call.status = CLIENT_LEFT
            except asyncio.CancelledError:  # the server's time to stop is over
                gone = ShuttingDown("The service has shut down; send this again elsewhere.")
                call.status = await self._fail(call, gone, send)
            except Exception as error:
                call.status = await self._fail(call, error, send)
            finally:
                self._report(label, call.status, call.elapsed_s)

    def _authorize(self, call: Call) -> None:
        """Compare in constant time, so that a key cannot be guessed byte by byte."""
        if self._api_key is None:
            return
        scheme, _, key = call.authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(key.strip(), self._api_key):
            raise Unauthorized("This service needs its API key: send the header Authorization: Bearer <key>.")

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
        reply = reply_for(error, call.request_id, self._routes.shape_at(call.scope["path"], call.scope["method"]))
        if reply.status == 500:
            log.error("a request failed", request_id=call.request_id.decode(), path=call.scope["path"], exc_info=error)
        return await reply.send(call, send)


def reply_for(error: Exception, request_id: bytes, shape: ErrorShape) -> Reply:
    """The error as the client sees it."""
    problem = problem_of(error, request_id)
    return Reply(problem.status, error_body(problem, shape), b"application/json", headers_of(error))


def on_http_exception(routes: RouteTable) -> Callable[[Request, Exception], Awaitable[Response]]:
    """A handler for what FastAPI's own router refuses: it becomes an error like every other."""

    async def handle(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, method = request.scope["path"], request.scope["method"]
        own = (
            MethodNotAllowed(method, path, (error.headers or {}).get("Allow", "GET"))
            if error.status_code == 405
            else NotFound(f"There is nothing at {path}; GET /docs lists what there is.")
        )
        reply = reply_for(own, b"", routes.shape_at(path, method))
        return Response(reply.body, reply.status, {name.decode(): value.decode() for name, value in reply.headers})

    return handle
