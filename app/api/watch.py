"""Noticing that a client has left while its request waits, so that nobody works for it."""

import asyncio
from collections import deque
from types import TracebackType

from app.api.call import Call, ClientLeft

WATCH_AFTER_S = 0.03
"""A call that takes longer is watched, at the latest after twice this; a shorter one is not worth a task."""


class Watchman:
    """Watches the calls that take long. One timer serves all: they come up in the order in which they began."""

    def __init__(self) -> None:
        self._recent: deque[Watch] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def over(self, call: Call) -> "Watch":
        """A context in which the current task ends with ClientLeft if the client leaves."""
        watch = Watch(call)
        self._recent.append(watch)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._look)
        return watch

    def _look(self) -> None:
        """Begin to listen for those who were there at the last look; let go of those who have finished."""
        still_here = [watch for watch in self._recent if not watch.over]
        self._recent.clear()
        for watch in still_here:
            if watch.seen:
                watch.listen()
            else:
                watch.seen = True
                self._recent.append(watch)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(WATCH_AFTER_S, self._look) if self._recent else None


class Watch:
    """One call under watch: when its client leaves, the task that works for it is cancelled."""

    __slots__ = ("_call", "_client_left", "_listener", "_task", "over", "seen")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._client_left = False
        self._listener: asyncio.Task[None] | None = None
        self._task = asyncio.current_task()
        self.seen = False
        self.over = False

    def __enter__(self) -> None:
        """Nothing to do: the watch began when it was made."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.over = True
        if self._listener is not None:
            self._listener.cancel()
        if self._client_left and self._task is not None:
            self._task.uncancel()
            raise ClientLeft from error

    def listen(self) -> None:
        """Begin to wait for the client to leave."""
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._call.receive())["type"] != "http.disconnect":
            pass
        self._client_left = True
        if self._task is not None:
            self._task.cancel()
