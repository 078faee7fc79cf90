"""The load that other servers are compared under: its accounting, against a fake server."""

import asyncio
import itertools
import json
import math
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.load import free_port
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.environments import PeerUnavailable
from benchmarks.peers.http_client import Client
from benchmarks.peers.processes import Service, started
from benchmarks.peers.shapes import Bulk, Reply, closed_loop, poisson
from benchmarks.peers.vectors import least_cosine
from benchmarks.peers.workloads import Driver, account
from tests.fake_peer import WIRE, FakeServer, serving

FAKE_PROGRAM = """
import http.server, os, sys
print(os.getpid(), flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "7")
        self.end_headers()
        self.wfile.write(b"[[1.0]]")
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def right(body: Any) -> tuple[int, Any]:
    """Every text its own vector: on the unit circle, at an angle of its length."""
    texts = [body["inputs"]] if isinstance(body["inputs"], str) else body["inputs"]
    return 200, [[math.cos(len(text)), math.sin(len(text))] for text in texts]


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 20))


def test_each_dialect_has_its_own_body_and_rows() -> None:
    assert json.loads(WIRE.one("a").partition(b"\r\n\r\n")[2]) == {"inputs": "a"}
    assert json.loads(WIRE.many(["a", "b"]).partition(b"\r\n\r\n")[2]) == {"inputs": ["a", "b"]}
    assert WIRE.rows(b"[[1, 2.5]]") == [[1.0, 2.5]]
    infinity = PEERS[0].wire
    assert json.loads(infinity.one("a").partition(b"\r\n\r\n")[2]) == {"input": ["a"], "model": "default"}
    assert infinity.rows(b'{"data": [{"embedding": [1, 2]}]}') == [[1.0, 2.0]]


def test_a_request_says_how_long_its_body_is_and_carries_its_headers() -> None:
    head, _, body = WIRE.one("ü", {"X-Mine": "7"}).partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"X-Mine: 7" in head


def test_closed_loop_counts_what_was_answered_and_never_exceeds_its_users() -> None:
    async def main() -> None:
        fake = FakeServer(right)
        async with serving(fake) as service, Client(service.host, service.port) as client:
            replies = await closed_loop(client, itertools.cycle([WIRE.one("a")]), 3, 0.2)
        assert len(fake.bodies) - 3 <= len(replies) <= len(fake.bodies)
        assert {reply.status for reply in replies} == {200}

    run(main())


def test_refused_requests_are_no_answers() -> None:
    async def main() -> None:
        async with serving(FakeServer(lambda body: (429, "full"))) as service:
            done = await Driver(["a"], ["b"]).closed(service, 2, 0.1)
        assert done.rate == 0
        assert done.failed > 0
        assert math.isnan(done.p50_ms)

    run(main())


def test_open_arrivals_do_not_wait_for_answers_and_hang_up_in_time() -> None:
    async def main() -> None:
        fake = FakeServer(right, held=asyncio.Event())
        async with serving(fake) as service, Client(service.host, service.port) as client:
            replies = await poisson(client, itertools.cycle([WIRE.one("a")]), 200, 0.2, seed=1, give_up_s=0.1)
            await fake.until(lambda fake: fake.hung_up == len(replies))
        assert len(fake.bodies) == len(replies) > 10
        assert all(reply.status == 0 and reply.latency_ms >= 100 for reply in replies)

    run(main())


def test_latency_counts_from_the_moment_a_request_was_due() -> None:
    async def main() -> None:
        async with serving(FakeServer(right)) as service, Client(service.host, service.port) as client:
            replies = await poisson(client, itertools.cycle([WIRE.one("a")]), 500, 0.1, seed=1)
        assert all(reply.latency_ms > reply.late_ms >= 0 for reply in replies)

    run(main())


def test_a_broken_connection_is_no_answer() -> None:
    async def main() -> None:
        async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(slam, "127.0.0.1", 0)
        async with server, Client("127.0.0.1", server.sockets[0].getsockname()[1]) as client:
            assert (await client.post(WIRE.one("a"))).status == 0
        async with Client("127.0.0.1", free_port()) as client:  # nobody listens
            assert (await client.post(WIRE.one("a"))).status == 0

    run(main())


def test_bulk_counts_texts_of_answered_lists_alone() -> None:
    async def main() -> None:
        answers = itertools.cycle([200, 500])
        fake = FakeServer(lambda body: (next(answers), right(body)[1]))
        async with serving(fake) as service, Client(service.host, service.port) as client:
            bulk = Bulk(client, itertools.cycle([WIRE.many(["a", "b"])]), 2, 1)
            per_s = await bulk.texts_per_s(0.2)
        assert bulk.failed == len(fake.bodies) // 2
        answered = len(fake.bodies) - bulk.failed
        assert 2 * (answered - 1) <= per_s * 0.2 <= 2 * answered

    run(main())


def test_overload_tells_the_deadline_only_where_it_is_asked_to() -> None:
    async def main() -> None:
        for tell in (True, False):
            fake = FakeServer(right)
            async with serving(fake) as service:
                await Driver(["a"], ["b"]).overload(service, 50, 1.5, 200, 0.1, tell=tell, seed=1)
            *requests, _until_usual = fake.heads
            assert all(("x-request-timeout-ms: 200\r\n" in head) is tell for head in requests)

    run(main())


def test_what_became_of_an_overload_adds_up() -> None:
    replies = [Reply(200, 10), Reply(200, 200), Reply(200, 201), Reply(429, 1), Reply(504, 300), Reply(0, 2000)]
    done = account(replies, slo_ms=200, capacity=4)
    assert done.goodput == 2 / 4
    assert (done.refused, done.late, done.gave_up) == pytest.approx((2 / 6, 1 / 6, 1 / 6))


def test_those_who_leave_hang_up_and_the_next_one_is_answered() -> None:
    async def main() -> None:
        held = asyncio.Event()
        held.set()
        fake = FakeServer(right, held)
        async with serving(fake) as service:
            leaving = asyncio.create_task(Driver(["a"], ["b"], rest_s=0.05).leaving(service, 20, 0.2, cpu_ms=1))
            await fake.until(lambda fake: len(fake.bodies) == 10)  # by which the usual time is measured
            held.clear()
            await fake.until(lambda fake: fake.hung_up == 20)
            held.set()
            done = await leaving
        assert done.answered == 0
        assert done.computed == 0  # no process is known
        assert 0 < done.usual_ms <= done.first_ms + done.usual_ms
        assert done.normal_after_ms >= done.first_ms

    run(main())


def test_a_vector_that_went_to_another_request_is_seen() -> None:
    texts = ["a" * n for n in range(1, 41)]
    wanted = [[math.cos(n), math.sin(n)] for n in range(1, 41)]

    async def cosine(answer: Callable[[Any], tuple[int, Any]]) -> float:
        async with serving(FakeServer(answer)) as service:
            return await least_cosine(service, texts, wanted)

    def swapped(body: Any) -> tuple[int, Any]:
        return right({"inputs": "aa"}) if body["inputs"] == "a" else right(body)

    assert asyncio.run(cosine(right)) == pytest.approx(1)
    assert asyncio.run(cosine(swapped)) < 0.6
    assert math.isnan(asyncio.run(cosine(lambda body: (500, ""))))


def test_a_paused_server_is_silent_and_a_resumed_one_answers(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-c", FAKE_PROGRAM, str(port)]

    async def status(service: Service, give_up_s: float) -> int:
        async with Client(service.host, service.port) as client:
            return (await client.post(WIRE.one("a"), give_up_s)).status

    with started("fake", WIRE, command, port, {}, tmp_path / "log", timeout_s=60) as service:
        assert service.memory_mb() > 1
        assert service.cpu_s() > 0
        service.pause()
        assert asyncio.run(status(service, 0.2)) == 0
        with service.running():
            assert asyncio.run(status(service, 20)) == 200
    assert not psutil.pid_exists(int((tmp_path / "log").read_text().split()[0]))


def test_a_server_that_ends_is_unavailable_for_the_reason_it_gave(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print('no such model'); sys.exit(3)"]
    with (
        pytest.raises(PeerUnavailable, match="code 3: no such model"),
        started("fake", WIRE, command, free_port(), {}, tmp_path / "log", timeout_s=60),
    ):
        pass
