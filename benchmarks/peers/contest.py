"""Who takes part: starts Convoy and its peers side by side, and says why any of them is missing."""

import json
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load import free_port
from benchmarks.peers.catalogue import AGAIN, CONVOY, QUIET, Peer, convoy_command
from benchmarks.peers.environments import FOLDER, PeerUnavailable, install, versions
from benchmarks.peers.processes import Service, elsewhere, started
from benchmarks.peers.wire import Wire

FLOAT32 = "float32"
CONVOY_WIRE = Wire("/embed")


@dataclass(frozen=True, slots=True)
class Contestant:
    """A service that takes part, as one of the field and in one number type."""

    service: Service
    peer: str
    dtype: str

    @property
    def name(self) -> str:
        return self.service.name


@dataclass(slots=True)
class Field:
    """All who take part, and why others do not."""

    contestants: list[Contestant] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of each peer that takes part: its package, and what computes in its environment."""

    @property
    def names(self) -> list[str]:
        return [contestant.name for contestant in self.contestants]

    def service(self, name: str) -> Service:
        return next(one.service for one in self.contestants if one.name == name)

    def named(self, peer: str, dtype: str) -> str | None:
        """The contestant of that peer in that number type; none where there is none."""
        return next((one.name for one in self.contestants if (one.peer, one.dtype) == (peer, dtype)), None)

    @property
    def dtype(self) -> str:
        """The number type that Convoy has chosen for this machine."""
        return next(one.dtype for one in self.contestants if one.name == CONVOY)


class LineUp:
    """Starts one server after another and leaves each paused, so that the next starts on a quiet machine."""

    def __init__(self, stack: ExitStack, timeout_s: float) -> None:
        self._stack = stack
        self._timeout_s = timeout_s
        self.field = Field()

    def convoy(self, *, both_dtypes: bool) -> None:
        """Convoy with its defaults, twice, and in float32 where that is not what it chooses itself."""
        for name in (CONVOY, AGAIN):
            self._convoy(name, "auto")
        if self.field.dtype != FLOAT32 and both_dtypes:
            self._convoy(f"{CONVOY} {FLOAT32}", FLOAT32)

    def peer(self, peer: Peer, *, both_dtypes: bool) -> None:
        """A peer in float32, its default, and in the type that Convoy has chosen for this machine."""
        try:
            environment = install(peer.requirements)
            self.field.versions[peer.name] = versions(environment / "bin" / "python", peer.package)
        except PeerUnavailable as reason:
            self._absent(peer.name, reason)
            return
        dtypes = {FLOAT32, self.field.dtype} if both_dtypes else {self.field.dtype}
        for dtype in sorted(dtypes, reverse=True):
            port = free_port()
            command, variables = peer.command(environment, dtype, port), peer.variables(dtype, port)
            try:
                self._start(f"{peer.name} {dtype}", peer.name, dtype, peer.wire, command, port, variables)
            except PeerUnavailable as reason:
                self._absent(f"{peer.name} {dtype}", reason)

    def elsewhere(self, name: str, wire: Wire, url: str) -> None:
        """A server that is running already."""
        self.field.contestants.append(Contestant(elsewhere(name, wire, url), name, "as it is run"))

    def _convoy(self, name: str, dtype: str) -> None:
        port = free_port()
        service = self._start(name, CONVOY, dtype, CONVOY_WIRE, convoy_command(dtype, port), port, {})
        if dtype == "auto":
            with service.running(), urllib.request.urlopen(f"http://127.0.0.1:{port}/info", timeout=10) as answer:
                chosen = json.load(answer)["model_dtype"]
            self.field.contestants[-1] = Contestant(service, CONVOY, chosen)

    def _start(
        self, name: str, peer: str, dtype: str, wire: Wire, command: Sequence[str], port: int, variables: dict[str, str]
    ) -> Service:
        log: Path = FOLDER / "logs" / f"{name.replace(' ', '-')}.log"
        service = self._stack.enter_context(
            started(name, wire, command, port, {**QUIET, **variables}, log, self._timeout_s)
        )
        service.pause()
        print(f"  {name}: up after {service.start_s:.1f} s", file=sys.stderr, flush=True)
        self.field.contestants.append(Contestant(service, peer, dtype))
        return service

    def _absent(self, name: str, reason: PeerUnavailable) -> None:
        print(f"  {name}: takes no part: {reason}", file=sys.stderr, flush=True)
        self.field.absent[name] = str(reason)
