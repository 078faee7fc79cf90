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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for connection in self._free:
            connection.close()
        self._free.clear()

    async def connect(self, connections: int) -> None:
        """Open so many connections before they are needed; those that cannot be opened are tried again by `post`."""
        made = await asyncio.gather(*(self._new() for _ in range(connections)))
        self._free.extend(connection for connection in made if connection is not None)

    async def post(self, request: bytes, give_up_s: float = 60.0) -> Answer:
        """Send one whole request; who cancels this, or waits longer than `give_up_s`, hangs up on the server."""
        connection = await self._connection()
        if connection is None:
            return Answer(NO_ANSWER, b"")
        try:
            return await connection.exchange(request, give_up_s)
        except OSError:
            return Answer(NO_ANSWER, b"")
        except BaseException:
            connection.close()
            raise
        finally:
            if connection.usable:
                self._free.append(connection)

    async def _connection(self) -> "_Connection | None":
        while self._free:
            if (connection := self._free.pop()).usable:
                return connection
        return await self._new()

    async def _new(self) -> "_Connection | None":
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

    async def exchange(self, request: bytes, give_up_s: float) -> Answer:
        """Raises OSError where the connection breaks or nothing has come in time."""
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        self._transport.write(request)
        timer = loop.call_later(give_up_s, self._give_up)  # cheaper than a scope of asyncio.timeout
        try:
            return await self._answer
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        self.close()
        self._fail(TimeoutError("the client gave up"))

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

    def _fail(self, error: OSError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
