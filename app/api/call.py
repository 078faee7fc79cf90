"""One HTTP exchange: the call as it came in, and the reply as it goes out."""

import asyncio
import itertools
import re
import secrets
import time
from collections.abc import Sequence

from starlette.types import Message, Receive, Scope, Send

from app.api.errors import BodyTooLarge, BodyTooSlow, UnsupportedMediaType

REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
"""What a client's own X-Request-Id may look like; any other is replaced."""
LINGER_S = 1.0
"""How long a refused body is read on and thrown away, so that the client gets to read the refusal."""

_prefix = secrets.token_hex(6)
_numbers = itertools.count(1)


class ClientLeft(Exception):
    """The client closed the connection before its answer."""


class Call:
    """An incoming request: its id, when it began, the headers that matter here, a bounded body."""

    __slots__ = (
        "accept",
        "authorization",
        "body_unread",
        "content_length",
        "content_type",
        "lane",
        "receive",
        "replied",
        "request_id",
        "scope",
        "started",
        "timeout",
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.started = time.perf_counter()
        self.body_unread = True
        self.replied = False
        """Whether an answer has begun; there can be no other then."""
        self.content_type = self.accept = self.authorization = self.request_id = b""
        self.lane: bytes | None = None
        self.timeout: bytes | None = None
        self.content_length = -1
        for name, value in scope["headers"]:
            if name == b"content-type":
                self.content_type = value
            elif name == b"accept":
                self.accept = value
            elif name == b"content-length":
                self.content_length = int(value)
            elif name == b"authorization":
                self.authorization = value
            elif name == b"x-lane":
                self.lane = value
            elif name == b"x-request-timeout-ms":
                self.timeout = value
            elif name == b"x-request-id" and REQUEST_ID.fullmatch(value):
                self.request_id = value
        if not self.request_id:
            self.request_id = b"%b-%x" % (_prefix.encode(), next(_numbers))

    async def read_json_body(self, limit: int, timeout_s: float) -> bytes:
        """The whole body of a JSON request.

        Raises UnsupportedMediaType for another content type, BodyTooLarge beyond `limit` bytes, without reading
        further, BodyTooSlow where it is not there in `timeout_s` seconds, and ClientLeft.
        """
        kind = self.content_type.partition(b";")[0].strip().lower()
        if kind and kind != b"application/json" and not kind.endswith(b"+json"):
            raise UnsupportedMediaType(
                f"The content type is {kind.decode('latin-1')!r}; send the body as application/json."
            )
        if self.content_length > limit:
            raise BodyTooLarge(limit)
        message = await self.receive()
        if message["type"] == "http.request" and not message.get("more_body", False):  # the usual case: all at once
            self.body_unread = False
            body: bytes = message.get("body", b"")
            if len(body) > limit:
                raise BodyTooLarge(limit)
            return body
        try:
            async with asyncio.timeout(timeout_s):
                return await self._read_on(message, limit)
        except TimeoutError:
            raise BodyTooSlow(f"The body was not there within {timeout_s:g} s; send it faster, or in parts.") from None

    async def _read_on(self, message: Message, limit: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            if message["type"] == "http.disconnect":
                raise ClientLeft
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > limit:
                raise BodyTooLarge(limit)
            if not message.get("more_body", False):
                self.body_unread = False
                return b"".join(chunks)
            message = await self.receive()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the request began."""
        return time.perf_counter() - self.started

    async def linger(self) -> None:
        """Read on for a moment and throw away what comes, so that closing does not reset the connection unread."""
        try:
            async with asyncio.timeout(LINGER_S):
                while (message := await self.receive())["type"] == "http.request" and message.get("more_body"):
                    pass
        except TimeoutError:
            return


class Reply:
    """What goes out: a status, headers, and a body of ready bytes."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self, status: int, body: bytes, content_type: bytes, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        self.status = status
        self.body = body
        self.headers = [(b"content-type", content_type), *headers]

    async def send(self, call: Call, send: Send) -> None:
        """Send it; where the body of the call was not read, close the connection, but only after a moment."""
        close = self.status in (408, 413) and call.body_unread
        headers = [
            *self.headers,
            (b"content-length", b"%d" % len(self.body)),
            (b"x-request-id", call.request_id),
        ]
        if close:
            headers.append((b"connection", b"close"))
        call.replied = True
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": close})
        if close:
            await call.linger()
            await send({"type": "http.response.body", "body": b""})
