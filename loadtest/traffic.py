"""The traffic: plays the steps one after another, and hands each user its turn at the moment it is due."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import gevent
from gevent.event import AsyncResult, Event
from gevent.lock import Semaphore

from loadtest.arrivals import arrivals_s, length_s, level_at
from loadtest.steps import Step

LEVEL_EVERY_S = 0.1
"""How often the number of users of a closed loop follows its course."""
MOST_USERS = 10_000


class Turn(NamedTuple):
    """One request to send now: in which step, and since when it is due."""

    step: int
    begin_s: float
    """When the step began, by `time.perf_counter`."""
    due_s: float
    """Since then."""


class Arrivals:
    """The turns of an open loop: each is due at its own moment, and late rather than left out.

    A turn goes to the user who has been idle for the shortest time, so that no more of them, and of their connections,
    are used than have to be.
    """

    def __init__(self, times_s: Sequence[float], begin_s: float) -> None:
        self._times_s = times_s
        self._begin_s = begin_s
        self._idle: list[AsyncResult] = []
        self._late: deque[float] = deque()
        self._taken = 0
        self._clock = gevent.spawn(self._call)

    @property
    def unsent(self) -> int:
        """Turns that nobody has taken yet."""
        return len(self._times_s) - self._taken

    def take(self) -> float | None:
        """Wait for a turn; returns when it was due, since the step's beginning, or None where none is left."""
        due_s: float | None = None
        if self._late:
            due_s = self._late.popleft()
        elif not self._clock.dead:
            called = AsyncResult()
            self._idle.append(called)
            due_s = called.get()
        self._taken += due_s is not None
        return due_s

    def give_back(self) -> None:
        """A request has ended; in an open loop that changes nothing."""

    def close(self) -> None:
        """No more turns; whoever waits is told."""
        self._clock.kill()
        self._late.clear()
        while self._idle:
            self._idle.pop().set(None)

    def _call(self) -> None:
        """Call a user for each moment, when it has come."""
        for due_s in self._times_s:
            gevent.sleep(max(0.0, self._begin_s + due_s - time.perf_counter()))
            if self._idle:
                self._idle.pop().set(due_s)
            else:
                self._late.append(due_s)


class Gate:
    """The turns of a closed loop: as many requests under way as its level says."""

    unsent = 0

    def __init__(self, begin_s: float) -> None:
        self._begin_s = begin_s
        self._room = Semaphore(0)
        self._level = 0
        self._surplus = 0
        self._open = True

    def set_level(self, level: int) -> None:
        """Let so many be under way; those above it are not replaced when they end."""
        more = level - self._level
        reused = max(0, min(more, self._surplus))
        self._surplus += max(0, -more) - reused
        self._level = level
        for _ in range(more - reused):
            self._room.release()

    def take(self) -> float | None:
        """Wait for room; returns the moment, since the step's beginning, or None when it is over."""
        self._room.acquire()
        return time.perf_counter() - self._begin_s if self._open else None

    def give_back(self) -> None:
        """A request has ended: another one may go."""
        if self._surplus:
            self._surplus -= 1
        else:
            self._room.release()

    def close(self) -> None:
        """No more turns; whoever waits is told."""
        self._open = False
        for _ in range(MOST_USERS):
            self._room.release()


class Played(NamedTuple):
    """A step that is over: how many of its turns were never sent, since nobody was free to, and the marks taken."""

    step: Step
    unsent: int
    counted_from: object
    """What `mark` returned when the warm-up was over."""
    counted_to: object
    """And at the end of the course."""


class TrafficOver(Exception):
    """All steps have been played."""


class Traffic:
    """Gives turns to whoever asks. `play` runs in a greenlet of its own; `take` and `give_back` are called by users."""

    def __init__(self, steps: Sequence[Step], *, seed: int, patience_s: float, mark: Callable[[], object]) -> None:
        """`mark` is called at both ends of each counted window; `patience_s` is how long a step may take to drain."""
        self._steps = steps
        self._seed = seed
        self._patience_s = patience_s
        self._mark = mark
        self._source: Arrivals | Gate | None = None
        self._begins = Event()
        self._idle = Event()
        self._idle.set()
        self._under_way = 0
        self._now = Turn(0, 0.0, 0.0)
        self.over = False

    def take(self) -> Turn:
        """Wait until a request is due; raises TrafficOver when none will be."""
        while not self.over:
            begins = self._begins
            source, now = self._source, self._now
            due_s = source.take() if source is not None else None
            if due_s is not None:
                self._under_way += 1
                self._idle.clear()
                return now._replace(due_s=due_s)
            if begins is self._begins:
                begins.wait()
        raise TrafficOver

    def give_back(self, turn: Turn) -> None:
        """The request of this turn has ended, however."""
        if self._source is not None and turn.step == self._now.step:
            self._source.give_back()
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

    def play(self, played: Callable[[Played], None]) -> None:
        """Play all steps, and tell of each when it has drained."""
        try:
            for number, step in enumerate(self._steps):
                played(self._play(number, step))
        finally:
            self.over = True
            self._begin(None)

    def _play(self, number: int, step: Step) -> Played:
        begin_s = time.perf_counter()
        self._now = Turn(number, begin_s, 0.0)
        source: Arrivals | Gate
        if step.loop == "open":
            source = Arrivals(arrivals_s(step.course, self._seed + number), begin_s)
        else:
            source = Gate(begin_s)
        self._begin(source)
        self._follow(source, step, begin_s, step.warmup_s)
        counted_from = self._mark()
        self._follow(source, step, begin_s, length_s(step.course))
        counted_to = self._mark()
        if step.loop == "closed":
            source.close()
        self._drain(source)
        unsent = source.unsent
        source.close()
        return Played(step, unsent, counted_from, counted_to)

    def _begin(self, source: Arrivals | Gate | None) -> None:
        begins, self._begins = self._begins, Event()
        self._source = source
        begins.set()

    def _follow(self, source: Arrivals | Gate, step: Step, begin_s: float, until_s: float) -> None:
        """Wait until so long after the step's beginning, while a closed loop's level follows its course."""
        while (at_s := time.perf_counter() - begin_s) < until_s:
            if isinstance(source, Gate):
                source.set_level(round(level_at(step.course, at_s)))
            steady = all(stretch.begin == stretch.end for stretch in step.course) and len(step.course) == 1
            gevent.sleep(until_s - at_s if steady else min(LEVEL_EVERY_S, until_s - at_s))

    def _drain(self, source: Arrivals | Gate) -> None:
        """Wait until everything that was sent has been answered, and all that was due is sent, within the patience."""
        end_s = time.perf_counter() + self._patience_s
        while (self._under_way or source.unsent) and (left_s := end_s - time.perf_counter()) > 0:
            self._idle.wait(left_s)
            gevent.sleep(0)  # those that were late and are still to be sent now begin
