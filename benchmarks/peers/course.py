"""The course of a run: every workload in rounds, there and back through the contestants, one awake at a time."""

import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from benchmarks.peers.catalogue import CONVOY
from benchmarks.peers.contest import FLOAT32, Field
from benchmarks.peers.figures import Spread, best
from benchmarks.peers.processes import Service
from benchmarks.peers.vectors import COUNT, least_cosine, reference
from benchmarks.peers.workloads import Closed, Driver, Leaving, Mixed, Overload, Steady

T = TypeVar("T")
NOT_TOLD = f"{CONVOY}, deadline not told"


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how often everything is measured."""

    rounds: int
    seconds: float
    """Of one closed loop; the other workloads take multiples of it."""
    connections: tuple[int, ...]
    rate_per_s: float
    """Of the steady arrivals; 0 for half of what the slowest contestant answers to 8 users."""
    queries_per_s: float
    """Of the queries beside bulk."""
    slo_ms: float
    overload: float
    """Arrivals under overload, as a multiple of each one's own capacity."""
    leavers: int
    stay_s: float
    """How long they wait before they leave."""


@dataclass(slots=True)
class Records:
    """What was measured: for each contestant, a record a round."""

    closed: dict[int, dict[str, list[Closed]]] = field(default_factory=dict)
    finalists: list[str] = field(default_factory=list)
    """Each contestant once, in the number type in which it answered more."""
    rate_per_s: float = 0.0
    steady: dict[str, list[Steady]] = field(default_factory=dict)
    mixed: dict[str, list[Mixed]] = field(default_factory=dict)
    overload: dict[str, list[Overload]] = field(default_factory=dict)
    leaving: dict[str, list[Leaving]] = field(default_factory=dict)
    cosine: dict[str, float] = field(default_factory=dict)
    idle_cpu: dict[str, float] = field(default_factory=dict)
    """CPU while nothing is asked, in parts of a core."""
    memory_mb: dict[str, float] = field(default_factory=dict)
    """After all of it."""

    def rates(self, connections: int) -> dict[str, list[float]]:
        return {name: [one.rate for one in runs] for name, runs in self.closed[connections].items()}


class Course:
    """Runs the plan over the field."""

    def __init__(self, plan: Plan, contestants: Field, driver: Driver, texts: list[str]) -> None:
        self._plan = plan
        self._field = contestants
        self._driver = driver
        self._texts = texts
        self._begun = time.monotonic()
        self.records = Records()

    async def run(self) -> Records:
        """Everything, in the order in which it builds upon itself."""
        await self._vectors()
        await self._closed_loops(self._busy, self._field.names)
        self._choose()
        for connections in self._plan.connections:
            if connections != self._busy:
                await self._closed_loops(connections, self.records.finalists)
        self._settle_rate()
        self.records.steady = await self._rounds("steady", self.records.finalists, self._steady)
        self.records.mixed = await self._rounds("mixed", self.records.finalists, self._mixed)
        self.records.overload = await self._rounds("overload", [*self.records.finalists, NOT_TOLD], self._overload)
        self.records.leaving = await self._rounds("leaving", self.records.finalists, self._leaving)
        await self._resources()
        return self.records

    async def _vectors(self) -> None:
        texts = self._texts[:COUNT]
        wanted = reference(texts)
        for one in self._field.contestants:
            with one.service.running():
                await self._driver.warm_up(one.service, 0.5)
                self.records.cosine[one.name] = await least_cosine(one.service, texts, wanted)
            self._say(f"vectors {one.name}: least cosine {self.records.cosine[one.name]:.6f}")

    async def _rounds(
        self, what: str, names: Sequence[str], measure: Callable[[str, Service, int], Awaitable[T]]
    ) -> dict[str, list[T]]:
        done: dict[str, list[T]] = {name: [] for name in names}
        for turn in range(self._plan.rounds):
            for name in names if turn % 2 == 0 else list(reversed(names)):
                service = self._field.service(_own(name))
                with service.running():
                    await self._driver.warm_up(service, 0.3)
                    done[name].append(await measure(name, service, turn))
                self._say(f"{what}, round {turn + 1}/{self._plan.rounds}, {name}: {done[name][-1]}")
        return done

    async def _closed_loops(self, connections: int, names: Sequence[str]) -> None:
        async def closed(_name: str, service: Service, _turn: int) -> Closed:
            return await self._driver.closed(service, connections, self._plan.seconds)

        self.records.closed[connections] = await self._rounds(f"{connections} connections", names, closed)
        self.records.closed = dict(sorted(self.records.closed.items()))

    async def _steady(self, name: str, service: Service, turn: int) -> Steady:
        return await self._driver.steady(service, self.records.rate_per_s, 3 * self._plan.seconds, seed=turn)

    async def _mixed(self, name: str, service: Service, turn: int) -> Mixed:
        return await self._driver.mixed(service, self._plan.queries_per_s, 2 * self._plan.seconds, seed=turn)

    async def _overload(self, name: str, service: Service, turn: int) -> Overload:
        own = _own(name)
        capacity = max(
            Spread.of(self.records.rates(connections).get(own, [])).median for connections in self._plan.connections
        )
        return await self._driver.overload(
            service, capacity, self._plan.overload, self._plan.slo_ms, 2 * self._plan.seconds, tell=name != NOT_TOLD,
            seed=turn,
        )  # fmt: skip

    async def _leaving(self, name: str, service: Service, turn: int) -> Leaving:
        cpu_ms = Spread.of(one.cpu_ms for one in self.records.closed[self._busy][name]).median
        return await self._driver.leaving(service, self._plan.leavers, self._plan.stay_s, cpu_ms)

    @property
    def _busy(self) -> int:
        """The number of connections at which number types are compared: 32, or what is nearest to that."""
        return min(self._plan.connections, key=lambda connections: abs(connections - 32))

    def _choose(self) -> None:
        """Of each contestant's number types the one that answered more; Convoy runs with its defaults."""
        rates = self.records.rates(self._busy)
        by_peer: dict[str, list[str]] = {}
        for one in self._field.contestants:
            if one.name != f"{CONVOY} {FLOAT32}":
                by_peer.setdefault(one.name if one.peer == CONVOY else one.peer, []).append(one.name)
        self.records.finalists = [best(rates, names) for names in by_peer.values()]
        self._say(f"on to the other workloads: {', '.join(self.records.finalists)}")

    def _settle_rate(self) -> None:
        """A rate that all can carry, where none was given."""
        few = self.records.rates(min(self._plan.connections, key=lambda connections: abs(connections - 8)))
        least = min(Spread.of(few[name]).median for name in self.records.finalists)
        self.records.rate_per_s = self._plan.rate_per_s or max(1.0, least // 2)

    async def _resources(self) -> None:
        for name in self.records.finalists:
            service = self._field.service(name)
            if service.observed:
                with service.running():
                    self.records.idle_cpu[name] = await self._driver.idle_cpu(service)
                    self.records.memory_mb[name] = service.memory_mb()

    def _say(self, what: str) -> None:
        print(f"  {time.monotonic() - self._begun:5.0f} s  {what}", file=sys.stderr, flush=True)


def _own(name: str) -> str:
    """The contestant that a line of the table is about."""
    return CONVOY if name == NOT_TOLD else name
