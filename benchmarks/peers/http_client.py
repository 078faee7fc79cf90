"""A light HTTP client: keep-alive connections over httptools, so that the driver takes little of the servers' cores."""

import asyncio
from dataclasses import dataclass
from typing import Self, cast

import httptools

NO_ANSWER = 0
"""The status of a request whose connection broke or which its client gave up."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the status, or `NO_ANSWER`, and the body."""

    status: int
    body: bytes


class Client:
    """As many connections to one server as requests are under way; each is used again when its answer is complete."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._free: list[_Connection] = []
        self.sent = 0
        """Requests that have been written to a connection."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for connection in self._free:
            connection.close()
        self._free.clear()

    async def post(self, request: bytes, give_up_s: float = 60.0) -> Answer:
        """Send one whole request; who cancels this, or waits longer than `give_up_s`, hangs up on the server."""
        connection = await self._connection()
        if connection is None:
            return Answer(NO_ANSWER, b"")
        try:
            self.sent += 1
            answer = await asyncio.wait_for(connection.exchange(request), give_up_s)
        except (TimeoutError, OSError):
            connection.close()
            return Answer(NO_ANSWER, b"")
        except BaseException:
            connection.close()
            raise
        if connection.usable:
            self._free.append(connection)
        return answer

    async def _connection(self) -> "_Connection | None":
        while self._free:
            if (connection := self._free.pop()).usable:
                return connection
        try:
            _, made = await asyncio.get_running_loop().create_connection(_Connection, self._host, self._port)
        except OSError:
            return None
        return made


class _Connection(asyncio.Protocol):
    """One connection, with at most one request under way."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self.usable = False

    def exchange(self, request: bytes) -> "asyncio.Future[Answer]":
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by class
        self.usable = True

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(str(error)))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._fail(ConnectionError("the server closed the connection"))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if (status := self._parser.get_status_code()) < 200:
            return  # 100 Continue and its like
        if not self._parser.should_keep_alive():
            self.close()
        answer = Answer(status, b"".join(self._body))
        self._body = []
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _fail(self, error: ConnectionError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
