"""A body that is read while it is answered: never far ahead of who takes it, and aware of a client that leaves."""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from app.api.call import Call, ClientLeft

AHEAD_BYTES = 65_536
"""So much may have come in that nobody has taken; then no more is read, and the client has to wait."""


class Upload:
    """The body of a call as it comes in, within `async with`; if the client leaves meanwhile, what the current task
    does there is cancelled, and ClientLeft is raised.

    The next part is always awaited while less than AHEAD_BYTES wait, also behind the end of the body: this is how one
    hears of a client that leaves.
    """

    def __init__(self, call: Call, news: asyncio.Event) -> None:
        """`news` is set whenever a part has come, or the end."""
        self._call = call
        self._news = news
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._room = asyncio.Event()
        self._whole = False
        self.client_left = False
        """Why the current task was cancelled, where this is why."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        self._pump = asyncio.create_task(self._read())
        await asyncio.sleep(0)  # it asks for the first part, so that a client that expects `100 Continue` gets it
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pump.cancel()
        if self.client_left and self._task is not None:
            self._task.uncancel()
            raise ClientLeft from error

    @property
    def ended(self) -> bool:
        """Whether all of it has come and been taken."""
        return self._whole and not self._parts

    def take(self) -> bytes | None:
        """The next part of what has come in; None where nothing has."""
        if not self._parts:
            return None
        part = self._parts.popleft()
        self._size -= len(part)
        self._room.set()
        return part

    async def _read(self) -> None:
        while True:
            while self._size >= AHEAD_BYTES:
                self._room.clear()
                await self._room.wait()
            message = await self._call.receive()
            if message["type"] == "http.disconnect":
                self.client_left = True
                assert self._task is not None
                self._task.cancel()
                return
            if part := message.get("body", b""):
                self._parts.append(part)
                self._size += len(part)
            if not message.get("more_body", False):
                self._whole = True
                self._call.body_unread = False
            self._news.set()
