"""One HTTP exchange: the call as it came in, and the reply as it goes out."""

import asyncio
import itertools
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from starlette.types import Message, Receive, Scope, Send

from app.api.compression import coding_for, compress, inflate, inflater_for
from app.api.errors import BodyTooLarge, BodyTooSlow, UnsupportedMediaType

JSON = b"application/json"
REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
"""What a client's own X-Request-Id may look like; any other is replaced."""
LINGER_S = 1.0
"""How long a refused body is read on and thrown away, so that the client gets to read the refusal."""

RECEIVED_AT = "convoy.received_at"
"""Where the scope says when the server had read the first bytes of a request, by `time.perf_counter`."""

_prefix = secrets.token_hex(6)
_numbers = itertools.count(1)


class ClientLeft(Exception):
    """The client closed the connection before its answer."""


class CutShort(Exception):
    """An answer that has begun ends before it is whole, as it says itself in what was sent last.

    `status` is what is reported of it.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Call:
    """An incoming request: its id, when it began, the headers that matter here, a bounded body."""

    __slots__ = (
        "accept",
        "accept_encoding",
        "authorization",
        "body_unread",
        "content_encoding",
        "content_length",
        "content_type",
        "lane",
        "parsed_s",
        "receive",
        "replied",
        "request_id",
        "scope",
        "started",
        "status",
        "timeout",
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.started: float = scope.get(RECEIVED_AT) or time.perf_counter()
        self.body_unread = True
        self.parsed_s = 0.0
        """Seconds until the request was read and understood."""
        self.replied = False
        """Whether an answer has begun; there can be no other then."""
        self.status = 0
        """What it was answered with, at the end."""
        self.content_type = self.accept = self.authorization = self.request_id = b""
        self.content_encoding = self.accept_encoding = b""
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
            elif name == b"accept-encoding":
                self.accept_encoding = value
            elif name == b"content-encoding":
                self.content_encoding = value
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
        """The whole body of a JSON request, inflated where it came compressed.

        Raises UnsupportedMediaType for another content type or encoding, BodyTooLarge beyond `limit` bytes, as it came
        or inflated, without reading or inflating further, BodyTooSlow where it is not there in `timeout_s` seconds,
        InvalidInput where what is compressed is damaged, and ClientLeft.
        """
        kind = self.content_type.partition(b";")[0].strip().lower()
        if kind and kind != b"application/json" and not kind.endswith(b"+json"):
            raise UnsupportedMediaType(
                f"The content type is {kind.decode('latin-1')!r}; send the body as application/json."
            )
        if self.content_encoding and (inflater := inflater_for(self.content_encoding)) is not None:
            return await inflate(await self._read(limit, timeout_s), inflater, limit)
        return await self._read(limit, timeout_s)

    async def _read(self, limit: int, timeout_s: float) -> bytes:
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


Header = tuple[bytes, bytes]
"""Name and value."""


class Reply:
    """What goes out: a status, headers, and a body of ready bytes."""

    __slots__ = ("body", "headers", "last_headers", "status")

    def __init__(self, status: int, body: bytes, content_type: bytes, headers: Sequence[Header] = ()) -> None:
        self.status = status
        self.body = body
        self.headers = [(b"content-type", content_type), *headers]
        self.last_headers: Callable[[], list[Header]] | None = None
        """More headers, asked for when all else is done: they say how long it took."""

    async def compressed(self, call: Call) -> "Reply":
        """The same, smaller, where the client takes that; says to caches that this depends on what it takes."""
        self.headers.append((b"vary", b"accept-encoding"))
        if call.accept_encoding and (coding := coding_for(call.accept_encoding)) is not None:
            self.body = await compress(self.body, coding)
            self.headers.append((b"content-encoding", coding))
        return self

    async def send(self, call: Call, send: Send) -> int:
        """Send it, and say with which status; where the body of the call was not read, close the connection, but only
        after a moment."""
        close = self.status in (408, 413) and call.body_unread
        headers = [
            *self.headers,
            (b"content-length", b"%d" % len(self.body)),
            (b"x-request-id", call.request_id),
        ]
        if self.last_headers is not None:
            headers += self.last_headers()
        if close:
            headers.append((b"connection", b"close"))
        call.replied = True
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": close})
        if close:
            await call.linger()
            await send({"type": "http.response.body", "body": b""})
        return self.status


Write = Callable[[bytes], Awaitable[None]]
"""Sends a part of an answer; waits while the client does not take what was sent before."""


class StreamReply:
    """What goes out bit by bit: `run` writes it. The first part, which may be empty, sends the status and headers."""

    __slots__ = ("_content_type", "_run")

    def __init__(self, content_type: bytes, run: Callable[[Write], Awaitable[None]]) -> None:
        self._content_type = content_type
        self._run = run

    async def send(self, call: Call, send: Send) -> int:
        """Have it written, and say with which status it is to be reported. HEAD gets the status and headers alone.

        Where `run` fails once it has begun to write, the answer is left without its end: the server closes the
        connection, and no client takes a part for the whole.
        """

        async def write(part: bytes) -> None:
            if not call.replied:
                headers = [(b"content-type", self._content_type), (b"x-request-id", call.request_id)]
                call.replied = True
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": part, "more_body": True})

        try:
            await (write(b"") if call.scope["method"] == "HEAD" else self._run(write))
        except CutShort as cut:
            await call.linger()
            return cut.status
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return 200
