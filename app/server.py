"""The process around the application: uvicorn, with our own way to begin, to stop, and to treat broken HTTP."""

import asyncio
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import structlog
import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.api.call import RECEIVED_AT

log = structlog.get_logger(__name__)

KEEP_ALIVE_S = 75
"""Longer than the idle time of the usual load balancers (60 s), so that it is never us who close first."""
CLOSE_TIMEOUT_S = 5
"""For connections that are still sending or receiving after the drain."""
MAX_HEAD_BYTES = 65_536
"""Of a request that is still in its headers when the next piece comes; the parser costs more with every one."""
UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
BAD_REQUEST = b'{"error":"This is not HTTP/1.1 as it is understood here.","error_type":"BadRequest"}'


class Served(Protocol):
    """What the server asks of the service it runs."""

    became_ready: asyncio.Event

    async def drain(self) -> None:
        """Finish what was accepted, within the time for it."""


class HttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 that ignores offers to upgrade, as RFC 9110 (7.8) allows, and answers broken requests in JSON.

    Clients such as Java's offer HTTP/2 (`Upgrade: h2c`) with the first request; the parser would take all that follows
    the headers for the other protocol, and the body would be lost. Headers that go on and on end the connection.

    uvicorn tells only the request that came last that the client has left; where a client sends several before the
    first is answered, it is the first that works for nobody, so here it is told too.
    """

    _in_head = _in_body = False
    _head_bytes = 0
    _running: RequestResponseCycle | None = None
    """The request that is being answered; others of the same connection wait for it."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._in_body and (b"pgrade:" in data or b"PGRADE:" in data):
            head, end, body = data.partition(b"\r\n\r\n")
            data = UPGRADE.sub(b"\r\nx-upgrade:", head) + end + body
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response("The headers do not end.")

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()
        self.scope[RECEIVED_AT] = time.perf_counter()  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(BAD_REQUEST)}\r\n\r\n".encode() + BAD_REQUEST)
        self.transport.close()


class Server(uvicorn.Server):
    """Drains first, while the port still answers; then closes, and ends with 0, or with 1 where something failed."""

    def __init__(
        self,
        app: Callable[..., object],
        service: Served,
        host: str,
        port: int,
        *,
        asks_for_key: bool,
        example: Callable[[], tuple[str, str]],
    ) -> None:
        """`example`: a path and a JSON body that the model which is ready then answers."""
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=HttpProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
            )
        )
        self._service = service
        self._asks_for_key = asks_for_key
        self._example = example
        self._stopping: asyncio.Task[None] | None = None
        self.exit_code = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announcement = asyncio.create_task(self._announce())

    async def _announce(self) -> None:
        await self._service.became_ready.wait()
        log.info(f"serving on {self.url} · documentation at {self.url}/docs")
        key = " -H 'authorization: Bearer '\"$CONVOY_API_KEY\"" if self._asks_for_key else ""
        path, body = self._example()
        log.info(f"try it: curl {self.url}{path}{key} -H 'content-type: application/json' -d '{body}'")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Drain, then exit; a second time, do not wait for the drain."""
        if self._stopping is not None:
            self.should_exit = self.force_exit = True
            return
        log.info("stopping: what was accepted is finished first")
        self._stopping = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        await self._service.drain()
        self.should_exit = True

    def fail(self, reason: str) -> None:
        """End the process with an error."""
        log.critical("the service cannot go on", reason=reason)
        self.exit_code = 1
        self.stop()

    @property
    def url(self) -> str:
        """Where to reach it, with the port it really has."""
        port = self.servers[0].sockets[0].getsockname()[1]
        host = "127.0.0.1" if self.config.host in ("0.0.0.0", "::") else self.config.host  # noqa: S104
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
