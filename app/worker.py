"""The worker threads: the only ones that touch a device, and the one that tokenizes."""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from app.errors import WorkerDied

T = TypeVar("T")

JOIN_TIMEOUT_S = 2.0
"""How long leaving waits for the thread; it is a daemon, so a stuck one does not keep the process alive."""


class Worker:
    """One thread that runs the functions it is given, one after another; use as an asynchronous context manager.

    What torch does for a model (loading, warm-up, forwards) must all happen on one thread: OpenMP keeps a team of
    threads for each calling thread, and a second team slows the first. An ordinary exception belongs to the call;
    SystemExit or the like from inside a call ends the thread, and every call after it raises WorkerDied.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._death: BaseException | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join, JOIN_TIMEOUT_S)

    @property
    def alive(self) -> bool:
        """Whether the thread can take a call."""
        return self._death is None and self._thread.is_alive()

    @property
    def running(self) -> bool:
        """Whether the thread is still there, whatever it does."""
        return self._thread.is_alive()

    def call(self, function: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """Run `function(*args)` on this worker's thread, beginning at once; its result is awaited.

        Raises, when awaited, what the function raises, and WorkerDied where the thread has ended or ends with this
        call.
        """
        answer: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(function, args, answer))
        if not self.alive:  # now or before, so that nobody is left to take it
            _fail(answer, self._died())
        return answer

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                result = job.function(*job.args)
            except Exception as error:
                self._post(_fail, job.answer, error)
            except BaseException as death:
                self._death = death
                self._post(_fail, job.answer, self._died())
                self._fail_queued()
                return
            else:
                self._post(_resolve, job.answer, result)
            del job  # nothing of a finished batch is kept alive while waiting for the next

    def _died(self) -> WorkerDied:
        return WorkerDied(f"The thread {self.name} has ended: {self._death!r}.")

    def _fail_queued(self) -> None:
        with suppress(queue.Empty):
            while True:
                if (job := self._jobs.get_nowait()) is not None:
                    self._post(_fail, job.answer, self._died())

    def _post(self, function: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise  # a closed loop has nobody left who waits


class _Job:
    __slots__ = ("answer", "args", "function")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], answer: "asyncio.Future[Any]") -> None:
        self.function = function
        self.args = args
        self.answer = answer


def _resolve(answer: "asyncio.Future[Any]", result: object) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if isinstance(error, StopIteration):  # a future does not take one
        error = RuntimeError(f"StopIteration: {error}")
    if not answer.done():
        answer.set_exception(error)
