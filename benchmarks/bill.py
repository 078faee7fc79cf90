"""Whether the bill is true: the segments that a request's `Server-Timing` names against the time its client measured.

Requests of several kinds (single texts, short lists, bulk lists, raw matrices, OpenAI's protocol) are sent over
connections that stay open, each measured from the first byte written to the last byte read, by a client on the same
machine that does next to nothing else. What the server cannot see is in the difference: the time in which a request
lies in the socket while the event loop answers others, and the way of the answer through the kernel.

usage: python -m benchmarks.bill [--requests 1000] [--rate 60 | --rate 0 --connections 8] [--model bundled] [--singles]

Flags of `serve` may follow, such as `--batching off`.
"""

import argparse
import json
import random
import re
import selectors
import socket
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from tqdm import tqdm

from benchmarks.load import free_port, server

TOLERANCE = 0.03
TOLERANCE_MS = 1.0
WORDS = "where is my card and why was the transfer to the other account charged twice since last week"
BILL = re.compile(rb"(\w+);dur=([\d.]+)")
BATCH = re.compile(rb"items=(\d+) .*waited=(\w+)")
LENGTH = re.compile(rb"content-length: (\d+)")


class Measured(NamedTuple):
    """One request: what its client measured, the bill's segments, both in ms, and what it waited for."""

    kind: str
    client_ms: float
    segments_ms: dict[str, float]
    batch_items: int
    waited_for: str

    @property
    def billed_ms(self) -> float:
        return sum(self.segments_ms.values())

    @property
    def gap_ms(self) -> float:
        return abs(self.client_ms - self.billed_ms)

    @property
    def is_true(self) -> bool:
        return self.gap_ms <= max(TOLERANCE * self.client_ms, TOLERANCE_MS)


def text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS.split(), k=words))


def message(rng: random.Random, *, singles: bool) -> tuple[str, bytes]:
    """A kind of request, and its bytes."""
    kind = (
        rng.choices(("single", "list of 4", "list of 64", "raw matrix", "openai"), (70, 10, 5, 5, 10))[0]
        if not singles
        else "single"
    )
    path, headers = "/embed", ""
    body: dict[str, object] = {"inputs": text(rng, rng.randint(3, 20))}
    if kind.startswith("list"):
        body = {"inputs": [text(rng, rng.randint(3, 20)) for _ in range(int(kind.split()[-1]))]}
    elif kind == "raw matrix":
        headers = "accept: application/octet-stream\r\n"
    elif kind == "openai":
        path, body = "/v1/embeddings", {"input": text(rng, 8), "model": "m", "encoding_format": "base64"}
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{headers}"
    return kind, f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


class Connection:
    """One request at a time over a connection that stays open."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def send(self, kind: str, message: bytes) -> None:
        self._kind = kind
        self._received.clear()
        self._started = time.perf_counter()
        self.socket.sendall(message)

    def receive(self, now: float) -> Measured | None:
        """Read what came at `now`; returns what was measured once the answer is whole."""
        piece = self.socket.recv(1 << 20)
        if not piece:
            raise SystemExit("The server closed the connection.")
        self._received += piece
        head_ends = self._received.find(b"\r\n\r\n")
        found = LENGTH.search(self._received, 0, head_ends) if head_ends >= 0 else None
        if found is None or len(self._received) < head_ends + 4 + int(found[1]):
            return None
        if b" 200 " not in self._received[:16]:
            raise SystemExit(f"The server answered {bytes(self._received[:200])!r}.")
        client_ms = (now - self._started) * 1e3
        segments = {name.decode(): float(ms) for name, ms in BILL.findall(self._received[:head_ends])}
        del segments["total"]
        batch = BATCH.search(self._received, 0, head_ends)
        assert batch is not None
        return Measured(self._kind, client_ms, segments, int(batch[1]), batch[2].decode())


class Client:
    """One thread that looks at its clock whenever it wakes, so that no request waits for the client itself."""

    def __init__(self, port: int, progress: "tqdm[Any]") -> None:
        self.measured: list[Measured] = []
        self._port = port
        self._progress = progress
        self._selector = selectors.DefaultSelector()
        self._idle: list[Connection] = []
        self._busy = 0

    def send(self, kind: str, message: bytes) -> None:
        """Over a connection that is idle, or a new one."""
        if not self._idle:
            connection = Connection(self._port)
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
            self._idle.append(connection)
        self._busy += 1
        self._idle.pop().send(kind, message)

    def receive(self, timeout_s: float) -> None:
        """Take the answers that come within this time, the first ones of them."""
        ready = self._selector.select(max(0.0, timeout_s))
        now = time.perf_counter()
        for key, _ in ready:
            measured = key.data.receive(now)
            if measured is not None:
                self.measured.append(measured)
                self._busy -= 1
                self._idle.append(key.data)
                self._progress.update()

    def drive(self, requests: Sequence[tuple[str, bytes]], rate: float, connections: int) -> None:
        """Send requests with Poisson arrivals, so many a second in the mean; or, where `rate` is 0, each as soon as
        one of so many connections is idle."""
        rng = random.Random(2)
        due = time.perf_counter()
        for kind, sent in requests:
            if rate:
                due += rng.expovariate(rate)
                while (left_s := due - time.perf_counter()) > 0:
                    self.receive(left_s)
            while not rate and self._busy >= connections:
                self.receive(60)
            self.send(kind, sent)
        while self._busy:
            self.receive(60)


def report(measured: Sequence[Measured]) -> str:
    lines = [
        "| requests | n | client, ms | gap p50, ms | gap p95, ms | true |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kind in ("all", *sorted({one.kind for one in measured})):
        those = [one for one in measured if kind in ("all", one.kind)]
        gaps = sorted(one.gap_ms for one in those)
        lines.append(
            f"| {kind} | {len(those)} | {statistics.median([one.client_ms for one in those]):.2f} | "
            f"{statistics.median(gaps):.2f} | {gaps[int(0.95 * (len(gaps) - 1))]:.2f} | "
            f"{sum(one.is_true for one in those) / len(those):.1%} |"
        )
    return "\n".join(lines)


def mean_bill(measured: Sequence[Measured]) -> str:
    """One row: the mean of each segment, the items of the batch, and what most requests waited for."""
    names = list(measured[0].segments_ms)
    means = [f"{statistics.mean([one.segments_ms[name] for one in measured]):.2f}" for name in names]
    causes = Counter(one.waited_for for one in measured).most_common(2)
    waited = ", ".join(f"{cause} {n / len(measured):.0%}" for cause, n in causes)
    items = statistics.mean([one.batch_items for one in measured])
    return (
        f"| {' | '.join(names)} | batch, items | waited for |\n|{' --- |' * (len(names) + 2)}\n"
        f"| {' | '.join(means)} | {items:.1f} | {waited} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=60, help="requests/s; 0 for a closed loop")
    parser.add_argument("--connections", type=int, default=8, help="of the closed loop")
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--singles", action="store_true", help="only single texts")
    args, flags = parser.parse_known_args()
    rng = random.Random(1)
    requests = [message(rng, singles=args.singles) for _ in range(args.requests)]
    port = free_port()
    command = ["-m", "app", "serve", "--model", args.model, "--port", str(port), "--log-level", "error", *flags]
    with server(command, port, "/ready"), tqdm(total=args.requests, file=sys.stderr, disable=None) as progress:
        client = Client(port, progress)
        client.drive(requests[:50], args.rate, args.connections)  # a warm-up
        client.measured.clear()
        progress.reset()
        client.drive(requests, args.rate, args.connections)
    print(report(client.measured))
    print(f"\nThe mean bill, in ms:\n\n{mean_bill(client.measured)}")
    holds = sum(one.is_true for one in client.measured) / len(client.measured) >= 0.95
    print(f"\nWithin {TOLERANCE:.0%} or {TOLERANCE_MS:g} ms for 95% of the requests: {'yes' if holds else 'no'}.")
    sys.exit(not holds)


if __name__ == "__main__":
    main()
