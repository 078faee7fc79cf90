"""A server of vectors for tests of load: it answers what it is told to, and knows what it was sent and who hung up."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peers.processes import Service
from benchmarks.peers.wire import Wire

WIRE = Wire("/embed")


class FakeServer:
    """Answers what it is told to, when it is told to; knows what it was sent and who hung up."""

    def __init__(self, answer: Callable[[Any], tuple[int, Any]], held: asyncio.Event | None = None) -> None:
        self._answer = answer
        self._held = held
        self.bodies: list[Any] = []
        self.heads: list[str] = []
        self.hung_up = 0
        self._changed = asyncio.Event()

    async def until(self, what: Callable[["FakeServer"], bool]) -> None:
        """Until what came, or who left, makes it true."""
        while not what(self):
            self._changed.clear()
            await self._changed.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
                self.heads.append(head)
                self.bodies.append(json.loads(await reader.readexactly(length)))
                self._changed.set()
                if self._held is not None and not self._held.is_set():
                    gone, free = asyncio.create_task(reader.read(1)), asyncio.create_task(self._held.wait())
                    await asyncio.wait((gone, free), return_when=asyncio.FIRST_COMPLETED)
                    free.cancel()
                    if gone.done():
                        self.hung_up += 1
                        self._changed.set()
                        return
                    gone.cancel()
                status, answer = self._answer(self.bodies[-1])
                body = json.dumps(answer).encode()
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(fake: FakeServer) -> AsyncIterator[Service]:
    async with await asyncio.start_server(fake.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield Service("fake", WIRE, "127.0.0.1", port)
