"""`POST /embed/stream`: every line its answer, in order, at the pace of who reads them."""

import asyncio
import base64
import gzip
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any

import aiohttp
import httpx
import numpy as np
import pytest

from tests.conftest import Serve
from tests.memory import Memory
from tests.server import RunningServer
from tests.test_compression import COMPRESS

STATUSES = 'convoy_requests_total{route="/embed/stream",status="%d"}'
NDJSON = {"content-type": "application/x-ndjson"}
TEXTS = [f"text number {i}" for i in range(5000)]


def ndjson(values: Iterable[Any]) -> bytes:
    return b"".join([json.dumps(value).encode() + b"\n" for value in values])


def ask(server: RunningServer, body: bytes, query: str = "", **headers: str) -> httpx.Response:
    return httpx.post(f"{server.url}/embed/stream{query}", content=body, headers=headers, timeout=60)


def answers_of(content: bytes) -> list[dict[str, Any]]:
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.splitlines()]


class Talk:
    """A stream that is written and read as a test likes."""

    def __init__(self, server: RunningServer, session: aiohttp.ClientSession) -> None:
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.answer: aiohttp.ClientResponse | None = None
        self._exchange = session.post(server.url + "/embed/stream", data=self._sent(), headers=NDJSON)

    async def _sent(self) -> AsyncIterator[bytes]:
        while (line := await self._lines.get()) is not None:
            yield line

    def say(self, value: Any) -> None:
        self._lines.put_nowait(json.dumps(value).encode() + b"\n")

    def end(self) -> None:
        self._lines.put_nowait(None)

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(10):
            if self.answer is None:
                self.answer = await self._exchange
            return json.loads(await self.answer.content.readline())  # type: ignore[no-any-return]

    async def hear_all(self, got: list[dict[str, Any]]) -> None:
        while True:
            got.append(await self.hear())


def talk(server: RunningServer, conversation: Callable[[Talk], Any]) -> None:
    async def main() -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            one = Talk(server, session)
            await conversation(one)
            one.end()

    asyncio.run(main())


class Deaf:
    """A client on a bare socket that sends as long as it is let, and reads nothing until it is told to."""

    def __init__(self, server: RunningServer) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.sendall(b"POST /embed/stream HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        self.sent_lines = 0
        self._rest = b""

    def send_until_stuck(self, most_lines: int, silence_s: float = 1.0) -> None:
        """Send numbered lines, until nothing more is taken for a while."""
        self.socket.settimeout(silence_s)
        while self.sent_lines < most_lines:
            if not self._rest:
                lines = ndjson([f"line {self.sent_lines + i} {'x' * 2000}" for i in range(100)])
                self._rest = b"%x\r\n%b\r\n" % (len(lines), lines)
                self.sent_lines += 100
            try:
                self._rest = self._rest[self.socket.send(self._rest) :]
            except TimeoutError:
                return

    def finish(self) -> bytes:
        """Send what is begun and the end, and read all answers meanwhile."""
        self.socket.setblocking(False)
        out, got = self._rest + b"0\r\n\r\n", bytearray()
        end = time.monotonic() + 60
        while not got.endswith(b"\r\n0\r\n\r\n"):
            assert time.monotonic() < end
            with suppress(BlockingIOError):
                out = out[self.socket.send(out) :] if out else out
            try:
                got += self.socket.recv(1 << 20)
            except BlockingIOError:
                time.sleep(0.001)
        self.socket.close()
        return bytes(got)


def test_each_text_gets_the_vector_that_it_gets_alone_in_order(fake_server: RunningServer) -> None:
    got = answers_of(ask(fake_server, ndjson(TEXTS)).content)
    assert [one["index"] for one in got] == list(range(5000))
    rows = [row for i in range(0, 5000, 1000) for row in fake_server.embed_all(TEXTS[i : i + 1000])[0].json()]
    assert [one["embedding"] for one in got] == rows


def test_a_line_is_a_string_or_an_object_and_its_id_comes_back(fake_server: RunningServer) -> None:
    ids: list[Any] = [7, "seven", None, {"a": [1, 2.5]}, True, "ü"]
    lines = [{"text": "a", "id": one} for one in ids] + [{"inputs": "a"}, "a"]
    got = answers_of(ask(fake_server, ndjson(lines)).content)
    assert [one.get("id", "none") for one in got] == [*ids, "none", "none"]
    assert all(one["embedding"] == got[0]["embedding"] for one in got)


def test_blank_lines_do_not_count_and_the_last_needs_no_end(fake_server: RunningServer) -> None:
    got = answers_of(ask(fake_server, b'\n \r\n"a"\r\n\n\n  "b"').content)
    assert [one["index"] for one in got] == [0, 1]
    assert ask(fake_server, b"").content == b""
    assert ask(fake_server, b" \n" * 100_000).content == b""


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/jsonl; charset=utf-8", "text/plain", ""])
def test_the_usual_content_types_are_taken(fake_server: RunningServer, kind: str) -> None:
    answer = ask(fake_server, b'"a"\n', **{"content-type": kind})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"


def test_options_hold_for_all_lines(fake_server: RunningServer) -> None:
    query = "?normalize=false&dimensions=3&encoding_format=base64&truncation_direction=left"
    got = answers_of(ask(fake_server, ndjson(TEXTS[:100]), query).content)
    body = {"inputs": TEXTS[:100], "normalize": False, "dimensions": 3, "truncation_direction": "left"}
    rows = httpx.post(fake_server.url + "/embed", json=body).json()
    vectors = [np.frombuffer(base64.b64decode(one["base64"]), "<f4") for one in got]
    assert np.array_equal(vectors, np.float32(rows))


def test_a_bad_line_costs_no_other_its_answer(fake_server: RunningServer) -> None:
    bad = {
        10: (b"nope", "Validation", "not JSON"),
        11: (b'{"a": 1}', "Validation", "neither is given"),
        12: (b'{"text": "a", "inputs": "a", "id": 3}', "Validation", "both are given"),
        13: (b'{"text": ["a"]}', "Validation", "text is no string"),
        14: (b'""', "Empty", "text is empty"),
        15: (b"3", "Validation", "neither a string nor an object"),
        16: (b'"BAD"', "Backend", "under request id"),
        17: (b'"NAN"', "Backend", "under request id"),
        18: (b'{"text": "a", "id": ' + b"[" * 500 + b"]" * 500 + b"}", "Validation", "nested too deeply"),
        19: (b'"\xff"', "Validation", "not JSON"),
        20: (json.dumps("w " * 30).encode(), "Validation", "text has 32 tokens; the limit is 16"),
    }
    lines = [bad[i][0] if i in bad else json.dumps(text).encode() for i, text in enumerate(TEXTS[:200])]
    got = answers_of(ask(fake_server, b"\n".join(lines), "?truncate=false").content)
    rows = fake_server.embed_all(TEXTS[:200])[0].json()
    for i, one in enumerate(got):
        assert one["index"] == i
        if i in bad:
            assert one["error_type"] == bad[i][1]
            assert bad[i][2] in one["error"]
            assert "final" not in one
        else:
            assert one["embedding"] == rows[i]
    assert got[12]["id"] == 3


def test_answers_flow_while_the_body_comes_in(fake_server: RunningServer) -> None:
    async def conversation(talk: Talk) -> None:
        for i in range(20):
            talk.say({"text": f"line {i}", "id": i})
            answer = await talk.hear()
            assert (answer["index"], answer["id"]) == (i, i)

    talk(fake_server, conversation)


def test_a_client_that_does_not_read_is_not_read_from_and_costs_no_memory(serve: Serve) -> None:
    server = serve("--model", "fake://?dim=384&base_ms=0&item_ms=0")
    ask(server, ndjson(TEXTS))
    memory = Memory(server)
    memory.forget_peak()
    before, accepted = memory.now(), server.accepted()
    client = Deaf(server)
    client.send_until_stuck(most_lines=200_000)
    assert client.sent_lines < 200_000
    taken = server.accepted() - accepted
    client.send_until_stuck(most_lines=200_000)
    assert server.accepted() - accepted == taken
    assert memory.peak() - before < 30_000_000
    answers = client.finish()
    assert answers.count(b'{"index":') == client.sent_lines
    assert b'"error"' not in answers


def test_a_client_that_leaves_ends_the_work(serve: Serve) -> None:
    server = serve("--model", "fake://?dim=8&base_ms=100&item_ms=0", "--max-batch-items", "32")

    async def conversation(talk: Talk) -> None:
        for text in TEXTS[:1000]:
            talk.say(text)
        await talk.hear()
        assert talk.answer is not None
        talk.answer.close()

    talk(server, conversation)
    accepted = server.accepted()
    asyncio.run(server.until(lambda: server.metric(STATUSES % 499), 1))
    assert server.accepted() <= accepted + 64
    assert server.metric('convoy_queue_items{lane="bulk"}') == 0


def test_a_stream_takes_the_bulk_lane_unless_it_asks_for_the_other(serve: Serve) -> None:
    server = serve("--model", "fake://")
    series = 'convoy_items_total{lane="%s",outcome="answered"}'
    ask(server, ndjson(TEXTS[:3]))
    assert server.metric(series % "bulk") == 3
    ask(server, ndjson(TEXTS[:3]), **{"x-lane": "interactive"})
    assert server.metric(series % "interactive") == 3


def test_what_is_too_much_waits_instead_of_failing(serve: Serve) -> None:
    server = serve("--model", "fake://?dim=8&base_ms=20&item_ms=0", "--max-queue-items", "40", "--max-inputs", "40")

    async def main() -> list[bytes]:
        async def one(session: aiohttp.ClientSession) -> bytes:
            async with session.post(server.url + "/embed/stream", data=ndjson(TEXTS[:200]), headers=NDJSON) as answer:
                return await answer.read()

        async with aiohttp.ClientSession() as session:
            return await asyncio.gather(*[one(session) for _ in range(4)])

    for content in asyncio.run(main()):
        got = answers_of(content)
        assert [one["index"] for one in got] == list(range(200))
        assert all("embedding" in one for one in got)
    assert server.metric('convoy_items_total{lane="bulk",outcome="shed"}') > 0


def test_a_line_that_can_never_be_in_time_is_told_so_and_the_others_are_answered(serve: Serve) -> None:
    server = serve(
        "--model", "fake://?dim=8&base_ms=1&item_ms=0&slow_on=SLOW&slow_ms=400", "--request-timeout-ms", "200"
    )
    got = answers_of(ask(server, ndjson(["a", "SLOW", "b"])).content)
    assert ["embedding" in one for one in got] == [True, False, True]
    assert got[1]["error_type"] == "Timeout"


def test_a_stopping_service_answers_what_it_accepted_and_says_that_this_was_all(serve: Serve) -> None:
    server = serve("--model", "fake://?dim=8&base_ms=50&item_ms=0", "--max-batch-items", "32")
    got: list[dict[str, Any]] = []

    async def conversation(talk: Talk) -> None:
        for text in TEXTS[:2000]:
            talk.say(text)
        got.append(await talk.hear())
        server.process.terminate()
        with pytest.raises(aiohttp.ClientPayloadError):
            await talk.hear_all(got)

    talk(server, conversation)
    assert [one["index"] for one in got] == list(range(len(got)))
    assert 64 < len(got) < 1000
    assert all("embedding" in one for one in got[:-1])
    assert got[-1]["error_type"] == "Unhealthy"
    assert got[-1]["final"] is True
    assert server.process.wait(10) == 0


def test_a_stopping_service_tells_a_stream_that_waits_for_more(serve: Serve) -> None:
    server = serve("--model", "fake://?dim=8&base_ms=0&item_ms=0")

    async def conversation(talk: Talk) -> None:
        talk.say("a")
        await talk.hear()
        server.process.terminate()
        last = await talk.hear()
        assert (last["index"], last["error_type"], last["final"]) == (1, "Unhealthy", True)

    talk(server, conversation)
    assert server.process.wait(10) == 0


def test_a_line_longer_than_a_body_may_be_ends_the_stream(serve: Serve) -> None:
    server = serve("--model", "fake://?dim=8&base_ms=0&item_ms=0", "--max-body-bytes", "2000")
    longest = ndjson(["a" * 1997])
    assert "embedding" in answers_of(ask(server, longest).content)[0]
    got: list[dict[str, Any]] = []

    async def conversation(talk: Talk) -> None:
        talk.say("a")
        talk.say("a" * 3000)
        talk.say("b")
        with pytest.raises(aiohttp.ClientPayloadError):
            await talk.hear_all(got)

    talk(server, conversation)
    assert "embedding" in got[0]
    assert (got[1]["index"], got[1]["error_type"], got[1]["final"]) == (1, "TooLarge", True)
    assert len(got) == 2
    assert server.metric(STATUSES % 413) == 1


def test_a_body_that_stalls_ends_the_stream_but_one_that_goes_on_may_take_long(serve: Serve) -> None:
    server = serve("--model", "fake://?dim=8&base_ms=0&item_ms=0", "--request-timeout-ms", "500")

    async def conversation(talk: Talk) -> None:
        for i in range(10):
            talk.say("a")
            assert (await talk.hear())["index"] == i
            await asyncio.sleep(0.1)
        last = await talk.hear()
        assert (last["index"], last["error_type"], last["final"]) == (10, "Timeout", True)

    talk(server, conversation)
    assert server.metric(STATUSES % 408) == 1


@pytest.mark.parametrize(
    ("query", "headers", "status", "says"),
    [
        ("?dimensions=9", {}, 422, "dimensions is 9; the model has 8"),
        ("?dimensions=x", {}, 422, "dimensions is 'x'; it must be a whole number"),
        ("?dimensions=4&dimensions=4", {}, 422, "dimensions is given twice"),
        ("?normalize=yes", {}, 422, "normalize is 'yes'; it must be one of true, false"),
        ("?prompt_name=none", {}, 422, "prompt_name is 'none'"),
        ("?input_type=none", {}, 422, "input_type is 'none'"),
        ("", {"x-lane": "fast"}, 422, "X-Lane is 'fast'"),
        ("", {"content-type": "application/json"}, 415, "application/x-ndjson"),
    ],
)
def test_what_is_wrong_before_the_first_line_is_an_error_like_any(
    fake_server: RunningServer, query: str, headers: dict[str, str], status: int, says: str
) -> None:
    answer = ask(fake_server, b'"a"\n', query, **headers)
    assert answer.status_code == status
    assert says in answer.json()["error"]


def test_a_stream_needs_the_key(serve: Serve) -> None:
    server = serve("--model", "fake://", "--api-key", "secret")
    assert ask(server, b'"a"\n').status_code == 401
    assert ask(server, b'"a"\n', authorization="Bearer secret").status_code == 200


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_compressed_stream_is_read_like_a_plain_one(fake_server: RunningServer, coding: str) -> None:
    body = ndjson(TEXTS)
    answer = ask(fake_server, COMPRESS[coding](body), **{"content-encoding": coding})
    assert answer.content == ask(fake_server, body).content


def test_lines_before_the_damage_are_answered(fake_server: RunningServer) -> None:
    whole = gzip.compress(ndjson(TEXTS))
    got: list[dict[str, Any]] = []
    headers = {"content-encoding": "gzip"}
    url = fake_server.url + "/embed/stream"
    with (
        pytest.raises(httpx.RemoteProtocolError),
        httpx.stream("POST", url, content=whole[: len(whole) // 2], headers=headers) as answer,
    ):
        got += [json.loads(line) for line in answer.iter_lines()]
    if not got:  # the client threw away what it had read
        return
    assert "not valid gzip: it ends too early" in got[-1]["error"]


@pytest.mark.parametrize("filler", [b"\x00", b"\n", b" "])
def test_a_bomb_in_a_stream_is_never_held(fake_server: RunningServer, filler: bytes) -> None:
    bomb = COMPRESS["zstd"](filler * (1 << 20)) * 1024
    memory = Memory(fake_server)
    memory.forget_peak()
    before = memory.now()
    headers = {**NDJSON, "content-encoding": "zstd"}

    async def main() -> bytes:
        async with (
            aiohttp.ClientSession() as session,
            session.post(fake_server.url + "/embed/stream", data=bomb, headers=headers) as answer,
        ):
            return await answer.content.readline()

    first = asyncio.run(main())
    assert memory.peak() - before < 40_000_000
    assert (b"TooLarge" in first) if filler == b"\x00" else not first
