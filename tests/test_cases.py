"""What services of this kind have been seen to get wrong, each kind of case sent to a real server process.

The device is simulated where its behaviour is the point; the bundled model serves where its own is.
"""

import asyncio
import json
import random
import re
import signal
import time
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any
from urllib.request import urlopen

import httpx
import numpy as np
import pytest

from app.settings import Settings
from tests.conftest import Serve
from tests.server import Answered, Crowd, RunningServer, metric_in, running_server

LANES = ("interactive", "bulk")
OUTCOMES = ("answered", "shed", "expired", "abandoned", "failed")
BATCHES = "convoy_batch_items_count"
DISPATCHED = "convoy_batch_items_sum"
"""Rows that were given to the device."""


class Clients(Crowd):
    """Many clients at once, with headers of their own."""

    async def ask(self, inputs: Any, headers: Mapping[str, str] | None = None, **options: Any) -> Answered:
        body = {"inputs": inputs, **options}
        return await self._read(self._session.post("/embed", json=body, headers=headers))

    async def occupy(self, server: RunningServer, text: str) -> "asyncio.Task[Answered]":
        """Send a text and return once it is with the device: what comes now has to wait."""
        before = count(server, BATCHES)
        call = asyncio.create_task(self.ask(text))
        await server.until(lambda: count(server, BATCHES), before + 1)
        return call


def ask(server: RunningServer, inputs: Any, headers: Mapping[str, str] | None = None, **options: Any) -> Answered:
    """One request of one client."""

    async def main() -> Answered:
        async with Clients(server.url) as clients:
            return await clients.ask(inputs, headers, **options)

    return asyncio.run(main())


def count(server: RunningServer, *series: str) -> float:
    """The sum of these series as they are now."""
    with urlopen(server.url + "/metrics") as answer:
        text = answer.read().decode()
    return sum(metric_in(text, one) for one in series)


def ended(server: RunningServer, outcome: str, *lanes: str) -> float:
    """Items that have ended so, in these lanes or in all."""
    return count(server, *[f'convoy_items_total{{lane="{lane}",outcome="{outcome}"}}' for lane in lanes or LANES])


def waiting(server: RunningServer, what: str = "items") -> float:
    return count(server, *[f'convoy_queue_{what}{{lane="{lane}"}}' for lane in LANES])


@pytest.fixture(scope="module")
def faulty() -> Iterator[RunningServer]:
    """A device that fails on some texts."""
    with running_server("--model", "fake://?dim=8&base_ms=30&item_ms=0&fail_on=RAISES&nan_on=NAN") as server:
        yield server


@pytest.fixture(scope="module")
def slow() -> Iterator[RunningServer]:
    """A device whose batches take long enough for things to happen meanwhile."""
    with running_server("--model", "fake://?dim=8&base_ms=600&item_ms=0") as server:
        yield server


@pytest.fixture(scope="module")
def steady() -> Iterator[RunningServer]:
    """Ten batches a second, of eight items each: what queues here is there for a while."""
    with running_server("--model", "fake://?dim=8&base_ms=100&item_ms=0", "--max-batch-items", "8") as server:
        yield server


@pytest.fixture(scope="module")
def narrow() -> Iterator[RunningServer]:
    """Batches of four items or twenty tokens, where the model reads a hundred."""
    with running_server(
        "--model", "fake://?dim=8&base_ms=1&item_ms=0&max_tokens=100",
        "--max-batch-items", "4", "--max-batch-tokens", "20", "--max-inputs", "1000",
    ) as server:  # fmt: skip
        yield server


@pytest.fixture(scope="module")
def strict() -> Iterator[RunningServer]:
    """Cuts no text unasked, and keeps vectors."""
    with running_server(
        "--model", "fake://?dim=8&base_ms=1&item_ms=0&max_tokens=16", "--cache-mb", "1", "--truncate", "off"
    ) as server:
        yield server


# --- questions about the service while it has much to do --------------------------------------------------------------


def test_health_readiness_and_metrics_answer_while_the_model_is_busy_with_a_long_list(
    real_server: RunningServer,
) -> None:
    """Model and answers share the cores and the interpreter; new requests go on being served as well."""
    scheduler = httpx.get(real_server.url + "/info").json()["scheduler"]
    seconds_each = 0.25 * scheduler["batch_ms_per_1000_tokens"] / 1000
    long = [f"{i} " + "card " * 248 for i in range(min(1000, 4 + int(2 / seconds_each)))]

    async def main() -> tuple[list[Answered], bool, Answered]:
        async with Clients(real_server.url) as clients:
            before = count(real_server, BATCHES)
            listed = asyncio.create_task(clients.ask(long))
            await real_server.until(lambda: count(real_server, BATCHES), before + 1)
            questions = [clients.get(path) for path in ["/health"] * 50 + ["/ready"] * 5 + ["/metrics"] * 5]
            answers = await asyncio.gather(*questions, *[clients.ask(f"a query {i}") for i in range(5)])
            return answers, listed.done(), await listed

    answers, was_done, listed = asyncio.run(main())
    assert {answer.status_code for answer in answers} == {200}
    assert not was_done, "they waited until the list was done"
    assert len(listed.json()) == len(long)


# --- more than the queue may hold -------------------------------------------------------------------------------------


def test_wave_after_wave_of_lists_and_singles_beyond_the_limit_gets_200_or_429_and_leaves_nothing_behind(
    serve: Serve,
) -> None:
    server = serve("--model", "fake://?dim=8&base_ms=20", "--max-queue-items", "5", "--max-inputs", "5")
    sent = 0
    for wave in range(3):
        lists = [[f"wave {wave} list {i} text {k}" for k in range(1 + i % 5)] for i in range(60)]
        singles = [[f"wave {wave} single {i}"] for i in range(60)]
        inputs = [one for pair in zip(lists, singles, strict=True) for one in pair]
        answers = server.embed_all(*inputs)
        sent += sum(map(len, inputs))
        assert {answer.status_code for answer in answers} == {200, 429}
        for answer, texts in zip(answers, inputs, strict=True):
            if answer.status_code == 200:
                assert len(answer.json()) == len(texts)
            else:
                assert int(answer.headers["retry-after"]) >= 1
        assert waiting(server) == waiting(server, "tokens") == 0
        assert ended(server, "answered") + ended(server, "shed") == sent
        assert ask(server, [f"after wave {wave}, text {k}" for k in range(5)]).status_code == 200
        sent += 5


def test_items_and_tokens_are_what_is_bounded_and_places_are_taken_before_tokenization(serve: Serve) -> None:
    """A limit in requests would let in lists of any length; one that is looked at after tokenization would give away
    all of the tokenizer's time."""
    server = serve(
        "--model", "fake://?dim=8&base_ms=2000&item_ms=0&max_tokens=1000",
        "--max-inputs", "100", "--max-queue-items", "250", "--max-queue-tokens", "2500",
    )  # fmt: skip
    one_token = "x" * 8000  # which nobody knows before it is tokenized
    refused = ask(server, [one_token] * 3)
    assert refused.status_code == 422
    assert "brings about 3000 tokens; the limit is 2500 in the whole queue" in refused.json()["error"]

    async def main() -> list[Answered]:
        async with Clients(server.url) as clients:
            first = await clients.occupy(server, "first")
            texts = [f"{i}" + " word" * 399 for i in range(6)]
            calls = []
            for number, text in enumerate(texts[:5]):
                calls.append(asyncio.create_task(clients.ask(text)))
                await server.until(lambda: waiting(server, "tokens"), 402 * number + 402)
                await server.until(lambda: -waiting(server, "tokens"), -402 * number - 402)
            refused = await clients.ask(texts[5])
            assert refused.status_code == 429
            assert "room for 490 more tokens and this request brings 501" in refused.json()["error"]
            assert "(limit 2500, --max-queue-tokens)" in refused.json()["error"]
            for call in calls:
                call.cancel()
            await server.until(lambda: -waiting(server), 0)

            calls = [first]
            for place, items in ((100, 100), (200, 100), (250, 50)):
                calls.append(asyncio.create_task(clients.ask([f"{place} {i}" for i in range(items)])))
                await server.until(lambda: waiting(server), place)
                if place >= 200:
                    refused = await clients.ask([f"too many {i}" for i in range(251 - place)])
                    assert refused.status_code == 429
                    assert f"room for {250 - place} more inputs" in refused.json()["error"]
                    assert "(limit 250, --max-queue-items)" in refused.json()["error"]
            assert not first.done(), "the device was free too early for this test to mean anything"
            return await asyncio.gather(*calls)

    assert [len(answer.json()) for answer in asyncio.run(main())] == [1, 100, 100, 50]
    assert waiting(server) == waiting(server, "tokens") == 0


# --- long texts and long lists ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "truncated"),
    [("word " * 60, None), ("word " * 5000, "1"), ([7] * 60, None), ([7] * 5000, "1")],
    ids=["a text above the budget", "a text above what is read", "ids above the budget", "ids above what is read"],
)
def test_a_text_above_the_batch_budget_is_answered_or_refused_and_those_after_it_are_served(
    narrow: RunningServer, text: Any, truncated: str | None
) -> None:
    async def main() -> list[Answered]:
        async with Clients(narrow.url) as clients:
            asked = (clients.ask(text), clients.ask(text, truncate=False))
            return await asyncio.gather(*asked, *[clients.ask(f"hi {i}") for i in range(20)])

    cut, uncut, *after = asyncio.run(main())
    assert (cut.status_code, cut.headers.get("x-truncated-inputs")) == (200, truncated)
    if truncated:
        assert uncut.status_code == 422
        assert uncut.json()["error"] == "inputs has 5002 tokens; the limit is 100 with truncation off."
    else:
        assert uncut.content == cut.content
    assert {answer.status_code for answer in after} == {200}


def test_with_truncation_off_a_long_text_is_refused_unless_its_request_allows_the_cut(strict: RunningServer) -> None:
    long = "word " * 40
    refused = ask(strict, ["short", long])
    assert refused.status_code == 422
    assert refused.json()["error"] == "inputs[1] has 42 tokens; the limit is 16 with truncation off."
    allowed = ask(strict, ["short", long], truncate=True)
    assert (allowed.status_code, allowed.headers["x-truncated-inputs"]) == (200, "1")
    assert ask(strict, "hi").status_code == 200


def test_lists_of_any_length_are_split_inside_and_keep_their_order_and_longer_ones_are_told_the_limit(
    narrow: RunningServer,
) -> None:
    lengths = (1, 4, 5, 33, 129, 1000)
    lists = [[f"{'word ' * (i % 7)}{length} {i}" for i in range(length)] for length in lengths]

    async def main() -> list[Answered]:
        async with Clients(narrow.url) as clients:
            raw = {"accept": "application/octet-stream"}
            backwards = [clients.ask(texts[::-1], raw) for texts in lists]
            return await asyncio.gather(*[clients.ask(texts, raw) for texts in lists], *backwards)

    answers = asyncio.run(main())
    assert {answer.status_code for answer in answers} == {200}
    found = [np.frombuffer(answer.content, "<f4").reshape(-1, 8) for answer in answers]
    for length, forwards, backwards in zip(lengths, found[:6], found[6:], strict=True):
        np.testing.assert_array_equal(forwards, backwards[::-1])
        assert len({row.tobytes() for row in forwards}) == length
    refused = ask(narrow, ["a"] * 1001)
    assert refused.status_code == 422
    assert "holds 1001 inputs; the limit is 1000" in refused.json()["error"]


def test_a_few_long_texts_among_many_short_ones_cost_what_their_tokens_cost(real_server: RunningServer) -> None:
    """Padded to the longest, these would be eleven times as many tokens."""

    def texts(round_: int, lengths: list[int]) -> list[str]:
        words = ("card", "bank", "money", "where", "when", "help", "rate")
        return [f"{words[round_]} {words[i // 10]} {i % 10}" + " card" * (n - 5) for i, n in enumerate(lengths)]

    mixed = [250] * 3 + [10] * 60
    equal = [22] * 27 + [21] * 36
    assert sum(mixed) == sum(equal) == 1350
    times_ms: dict[str, list[float]] = {"mixed": [], "equal": []}
    for round_ in range(5):
        for name, lengths in (("mixed", mixed), ("equal", equal)):
            before = count(real_server, "convoy_batch_tokens_sum")
            answer = ask(real_server, texts(round_, lengths), {"accept": "application/octet-stream"})
            assert answer.status_code == 200
            assert count(real_server, "convoy_batch_tokens_sum") - before == 1350
            forward = re.search(r"forward;dur=([\d.]+)", answer.headers["server-timing"])
            assert forward
            times_ms[name].append(float(forward[1]))
    assert median(times_ms["mixed"]) < 2 * median(times_ms["equal"]), times_ms


# --- texts and devices that fail --------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["RAISES", "NAN"])
def test_a_text_that_the_model_fails_on_fails_alone_wherever_it_stands_among_good_ones(
    faulty: RunningServer, word: str
) -> None:
    """Whether the model raises or returns what is no number: neighbours get their own right rows, nobody nulls."""
    good: list[list[str]] = [[f"{word.lower()} {i} {k}" for k in range(1 + i % 3)] for i in range(31)]
    alone = ask(faulty, [text for texts in good for text in texts]).json()
    for places in ([0], [15], [31], [3, 4, 28]):
        inputs = list(good)
        for place in places:
            inputs.insert(place, [f"a bad one {word} {place}"])
        before = count(faulty, "convoy_item_failures_total")
        answers = faulty.embed_all(*inputs)
        statuses = [answer.status_code for answer in answers]
        assert statuses == [500 if place in places else 200 for place in range(len(inputs))]
        assert [row for answer in answers if answer.status_code == 200 for row in answer.json()] == alone
        assert count(faulty, "convoy_item_failures_total") - before == len(places)
        assert not any(b"null" in answer.content or b"NaN" in answer.content for answer in answers)
    assert ask(faulty, ["good", f"{word} in a list", "good too"]).status_code == 500
    assert ask(faulty, "the next").status_code == 200
    assert httpx.get(faulty.url + "/ready").status_code == 200


def test_out_of_memory_is_met_by_smaller_batches_until_it_comes_no_more(serve: Serve) -> None:
    server = serve("--model", "fake://?dim=8&base_ms=5&item_ms=0&oom_above=4&max_tokens=12")
    inputs = [[f"{i} {k}" for k in range(30 if i % 10 == 0 else 1)] for i in range(40)]
    first = server.embed_all(*inputs)
    times = count(server, "convoy_out_of_memory_total")
    budget = count(server, "convoy_max_batch_tokens")
    assert times >= 1
    second = server.embed_all(*inputs)
    assert count(server, "convoy_out_of_memory_total") == times
    assert count(server, "convoy_max_batch_tokens") == budget
    assert count(server, "convoy_item_failures_total") == 0
    assert [answer.status_code for answer in first + second] == [200] * 80
    assert [answer.content for answer in first] == [answer.content for answer in second]


@pytest.mark.parametrize("stays", [False, True], ids=["and the process ends", "and the process stays, unready"])
def test_a_model_that_hangs_leaves_nobody_waiting(serve: Serve, stays: bool) -> None:
    """Nothing can end a thread that hangs inside the model: whoever waits is told, in both lanes."""
    server = serve(
        "--model", "fake://?dim=8&base_ms=5&slow_on=HANG&slow_ms=60000", "--watchdog-s", "1",
        *(["--exit-on-dead-worker", "off"] if stays else []),
    )  # fmt: skip
    assert ask(server, "well").status_code == 200

    async def main() -> list[Answered]:
        async with Clients(server.url) as clients:
            hanging = await clients.occupy(server, "HANG")
            behind = [clients.ask([f"{i} {k}" for k in range(1 + 20 * (i % 2))]) for i in range(20)]
            return await asyncio.gather(hanging, *behind)

    started = time.monotonic()
    hanging, *behind = asyncio.run(main())
    assert time.monotonic() - started < 15, "they were left to their own deadlines"
    assert hanging.status_code == 500
    assert {answer.status_code for answer in behind} == {503}
    assert all("must be restarted" in answer.json()["error"] for answer in behind)
    if stays:
        with server.client() as client:
            for path in ("/ready", "/health"):
                assert client.get(path).status_code == 503
            assert ask(server, "after it").status_code == 503
            assert client.get("/metrics").status_code == 200
        assert count(server, "convoy_workers_lost_total") == 1
        assert server.process.poll() is None
    else:
        assert server.process.wait(30) == 1
        assert "the service cannot go on" in server.log()
    assert "has not answered a batch of 1 inputs within 1 s" in server.log()


# --- clients that leave -----------------------------------------------------------------------------------------------


def test_nothing_of_500_clients_that_leave_after_a_moment_reaches_the_device_after_they_left(serve: Serve) -> None:
    server = serve(
        "--model", "fake://?dim=8&base_ms=1000&item_ms=0", "--max-batch-items", "8", "--request-timeout-ms", "3600000"
    )

    async def come_and_leave(number: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        body = json.dumps({"inputs": [f"leaves {number} {k}" for k in range(1 + 9 * (number % 2))]}).encode()
        head = (
            f"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        async with Clients(server.url) as clients:
            first = await clients.occupy(server, "first")
            await asyncio.gather(*[come_and_leave(number) for number in range(500)])
            await server.until(lambda: count(server, 'convoy_requests_total{route="/embed",status="499"}'), 500)
            assert (await first).status_code == 200

    asyncio.run(main())
    assert waiting(server) == waiting(server, "tokens") == 0
    rows, batches = count(server, DISPATCHED), count(server, BATCHES)
    assert rows <= 1 + 8 * (batches - 1)
    assert rows + ended(server, "abandoned") >= 2751
    assert ask(server, "stays").status_code == 200
    assert count(server, DISPATCHED) == rows + 1
    assert count(server, BATCHES) == batches + 1


def test_those_who_leave_while_their_batch_runs_take_nothing_from_those_who_stay_in_it(slow: RunningServer) -> None:
    texts = [[f"shared batch {i} {k}" for k in range(1 + i % 3)] for i in range(40)]

    async def main() -> tuple[int, list[Answered]]:
        async with Clients(slow.url) as clients:
            before = slow.accepted()
            first = await clients.occupy(slow, "first, so that the others travel together")
            calls = [asyncio.create_task(clients.ask(one)) for one in texts]
            await slow.until(slow.accepted, before + 1 + sum(map(len, texts)))
            await slow.until(lambda: -waiting(slow), 0)
            leaving = [number for number in range(0, len(calls), 2) if not calls[number].done()]
            for number in leaving:
                calls[number].cancel()
            await first
            return sum(len(texts[number]) for number in leaving), await asyncio.gather(*calls[1::2])

    before = ended(slow, "abandoned")
    left, stayed = asyncio.run(main())
    assert left
    asyncio.run(slow.until(lambda: ended(slow, "abandoned"), before + left))
    assert [answer.json() for answer in stayed] == [answer.json() for answer in slow.embed_all(*texts[1::2])]


# --- rows of many callers ---------------------------------------------------------------------------------------------


def test_every_row_of_lists_singles_and_ids_in_both_lanes_is_its_callers_own(serve: Serve) -> None:
    server = serve("--model", "fake://?dim=8&base_ms=5", "--workers", "2", "--max-batch-items", "50")
    rng = random.Random(3)
    asked: list[Any] = []
    for number in range(500):
        texts = [f"{number} {k}" + " word" * rng.randrange(60) for k in range(rng.choice((1, 1, 1, 5, 12)))]
        ids = [[1 + number, 1 + k, *[9] * rng.randrange(60)] for k in range(len(texts))]
        asked.append(ids if number % 10 == 0 else texts)

    async def main() -> list[Answered]:
        async with Clients(server.url) as clients:
            lanes = [{"x-lane": rng.choice(LANES)} for _ in asked]
            return await asyncio.gather(*[clients.ask(one, lane) for one, lane in zip(asked, lanes, strict=True)])

    answers = asyncio.run(main())
    quiet = serve("--model", "fake://?dim=8&base_ms=0&item_ms=0")
    with quiet.client() as client:
        for one, answer in zip(asked, answers, strict=True):
            rows = [client.post("/embed", json={"inputs": [single]}).json()[0] for single in one[::4]]
            assert answer.json()[::4] == rows
    assert len({str(row) for answer in answers for row in answer.json()}) == sum(map(len, asked))


def test_one_text_asked_for_in_many_ways_at_once_comes_in_each_of_them(slow: RunningServer) -> None:
    """What callers share of a row, none may change for the others."""
    ways: list[dict[str, Any]] = [
        {},
        {"dimensions": 3},
        {"dimensions": 5, "encoding_format": "base64"},
        {"normalize": False},
        {"normalize": False, "dimensions": 3},
        {"encoding_format": "base64"},
    ]
    texts = [f"in many ways {i}" for i in range(3)]
    inputs = [*texts, texts]

    async def at_once(times: int) -> list[Answered]:
        async with Clients(slow.url) as clients:
            first = await clients.occupy(slow, "first")
            calls = [clients.ask(one, None, **way) for _ in range(times) for way in ways for one in inputs]
            answers = await asyncio.gather(*calls)
            assert (await first).status_code == 200
            return answers

    plain = [np.array(ask(slow, text).json()[0], dtype=np.float32) for text in texts]
    found = asyncio.run(at_once(3))
    assert {answer.status_code for answer in found} == {200}
    by_way = [found[i : i + len(inputs)] for i in range(0, len(found), len(inputs))]
    for number, answers in enumerate(by_way):
        assert [answer.content for answer in answers] == [answer.content for answer in by_way[number % len(ways)]]
    for answers in by_way[:: len(ways)]:
        for row, answer in zip(plain, answers[:3], strict=True):
            np.testing.assert_array_equal(np.array(answer.json()[0], dtype=np.float32), row)
    for answers in by_way[1 :: len(ways)]:
        for row, answer in zip(plain, answers[:3], strict=True):
            np.testing.assert_allclose(answer.json()[0], row[:3] / np.linalg.norm(row[:3]), rtol=1e-5)


def test_identical_texts_in_flight_are_computed_once_and_their_rows_are_the_same_bit_for_bit(
    slow: RunningServer,
) -> None:
    async def main() -> list[Answered]:
        async with Clients(slow.url) as clients:
            first = await clients.occupy(slow, "first of all")
            calls = [clients.ask("the same") for _ in range(20)]
            answers = await asyncio.gather(*calls, clients.ask(["the same", "another", "the same"]))
            assert (await first).status_code == 200
            return answers

    shared, rows = count(slow, "convoy_shared_items_total"), count(slow, DISPATCHED)
    *singles, listed = asyncio.run(main())
    assert len({answer.content for answer in singles}) == 1
    (row,) = singles[0].json()
    assert listed.json()[::2] == [row, row]
    assert listed.json()[1] != row
    assert count(slow, "convoy_shared_items_total") - shared == 21
    assert count(slow, DISPATCHED) - rows == 3
    assert ask(slow, "the same").json() == [row]
    assert count(slow, DISPATCHED) - rows == 4, "a row is not kept once it is delivered"


def test_a_text_that_comes_again_is_answered_from_the_cache_as_it_was_and_nothing_is_computed(
    strict: RunningServer,
) -> None:
    hits, misses = count(strict, "convoy_cache_hits_total"), count(strict, "convoy_cache_misses_total")
    new = ask(strict, "once and again")
    assert "cached" not in new.headers["server-timing"]
    batches = count(strict, BATCHES)
    again = ask(strict, "once and again")
    assert again.content == new.content
    assert "cached=1" in again.headers["server-timing"]
    short = ask(strict, "once and again", dimensions=3)
    assert "cached=1" in short.headers["server-timing"]
    assert len(short.json()[0]) == 3
    assert ask(strict, "once and again").content == new.content, "another's wish has changed what is kept"
    assert count(strict, BATCHES) == batches
    assert count(strict, "convoy_cache_hits_total") - hits == 3
    assert count(strict, "convoy_cache_misses_total") - misses == 1
    assert count(strict, "convoy_cache_bytes") > 0

    mixed = ask(strict, ["never before", "once and again", "nor this"])
    assert "cached=1" in mixed.headers["server-timing"]
    assert mixed.json()[1] == new.json()[0]
    assert mixed.json()[::2] == [ask(strict, "never before").json()[0], ask(strict, "nor this").json()[0]]
    assert "cached" not in ask(strict, "once and again", normalize=False).headers["server-timing"]
    long = "word " * 40
    for _ in range(2):
        assert ask(strict, long, truncate=True).headers["x-truncated-inputs"] == "1"
        assert ask(strict, long).status_code == 422


# --- lanes and deadlines ----------------------------------------------------------------------------------------------


def test_a_request_takes_the_lane_of_its_header_or_else_that_of_its_length(steady: RunningServer) -> None:
    for length, header, lane in (
        (1, None, "interactive"), (4, None, "interactive"), (5, None, "bulk"), (1, "bulk", "bulk"),
        (40, "interactive", "interactive"), (40, "Interactive", "interactive"), (1, "BULK", "bulk"),
    ):  # fmt: skip
        before = ended(steady, "answered", lane)
        headers = {"x-lane": header} if header else None
        assert ask(steady, [f"{header} {length} {k}" for k in range(length)], headers).status_code == 200
        assert ended(steady, "answered", lane) - before == length


@pytest.mark.parametrize(
    ("header", "values"),
    [
        ("X-Lane", ["", "fast", "interactive,bulk", "bulk ;", "0"]),
        ("X-Request-Timeout-Ms", ["", "0", "000", "-1", "1.5", "1e3", "soon", "10000000000"]),
    ],
)
def test_a_header_that_cannot_be_understood_is_refused_by_its_name(
    steady: RunningServer, header: str, values: list[str]
) -> None:
    for value in values:
        answer = ask(steady, "a", {header: value})
        assert (answer.status_code, answer.json()["error_type"]) == (422, "Validation"), value
        assert answer.json()["error"].startswith(f"{header} is '{value}'"), answer.json()


def test_interactive_requests_beside_long_lists_are_answered_within_a_few_batches(steady: RunningServer) -> None:
    """The lists alone would take a hundred batches."""

    async def main() -> list[float]:
        async with Clients(steady.url) as clients:
            lists = [asyncio.create_task(clients.ask([f"{i} {k}" for k in range(100)])) for i in range(8)]
            await steady.until(lambda: waiting(steady), 700)
            passed = []
            for number in range(9):
                before = count(steady, BATCHES)
                answer = await clients.ask(f"a query {number}")
                assert answer.status_code == 200
                passed.append(count(steady, BATCHES) - before)
            assert waiting(steady) > 400, "the lists are done already"
            for one in lists:
                one.cancel()
            await steady.until(lambda: -waiting(steady), 0)
            return passed

    before = count(steady, DISPATCHED)
    assert median(asyncio.run(main())) <= 4
    assert count(steady, DISPATCHED) - before > 9 + 16, "the lists did not move on"


def test_a_flood_with_short_deadlines_is_refused_where_it_would_be_late_and_the_patient_are_all_answered(
    steady: RunningServer,
) -> None:
    """Accepting all would answer nobody in time; dropping by chance would refuse those who can wait."""

    async def main() -> list[Answered]:
        async with Clients(steady.url) as clients:
            patient = [clients.ask(f"patient {i}") for i in range(20)]
            hasty = [clients.ask(f"hasty {i}", {"x-request-timeout-ms": "700"}) for i in range(200)]
            return await asyncio.gather(*patient, *hasty)

    answers = asyncio.run(main())
    patient, hasty = answers[:20], answers[20:]
    assert {answer.status_code for answer in patient} == {200}
    statuses = [answer.status_code for answer in hasty]
    assert set(statuses) <= {200, 429, 504}
    refused = [answer for answer in hasty if answer.status_code == 429]
    assert len(refused) >= 100, "the device can carry some fifty of them in time"
    for answer in refused:
        assert int(answer.headers["retry-after"]) >= 1
        assert "the deadline is" in answer.json()["error"]
    assert statuses.count(200) > statuses.count(504), "most of those who were accepted are answered in time"
    assert statuses.count(200) >= 8
    assert ask(steady, "afterwards").status_code == 200


def test_a_deadline_in_a_header_is_kept_while_a_batch_takes_longer_than_anybody_could_know(serve: Serve) -> None:
    server = serve("--model", "fake://?dim=8&base_ms=20&slow_on=SLOW&slow_ms=8000")

    async def main() -> None:
        async with Clients(server.url) as clients:
            running = await clients.occupy(server, "SLOW")
            await asyncio.sleep(0.2)  # until it should have been done, so that nobody is refused for it
            header = {"x-request-timeout-ms": "300"}
            calls = [clients.ask("one", header), clients.ask([f"{k}" for k in range(20)], header)]
            late = await asyncio.gather(*calls)
            assert not running.done(), "they were told when the batch was back"
            for answer in late:
                assert (answer.status_code, answer.json()["error_type"]) == (504, "Timeout")
                assert answer.seconds >= 0.29
            assert ended(server, "expired", "interactive") == 1
            assert ended(server, "expired", "bulk") == 20
            assert waiting(server) == 0
            running.cancel()

    asyncio.run(main())


# --- settings and the end ---------------------------------------------------------------------------------------------


OTHER_THAN_DEFAULT: dict[str, Any] = {
    "model": "fake://?dim=6", "served_model_name": "mine", "device": "cpu", "dtype": "float32", "workers": 3,
    "warmup": "quick", "host": "0.0.0.0", "max_batch_tokens": 777, "max_batch_items": 33, "interactive_inputs": 2,
    "bulk_share": 0.25, "target_batch_ms": 40.0, "max_queue_items": 500, "max_queue_tokens": 50_000, "max_inputs": 100,
    "max_body_bytes": 20_000, "truncate": False, "request_timeout_ms": 2500, "drain_timeout_s": 7.0,
    "protect_metrics": True, "watchdog_s": 12.5, "cache_mb": 3.0, "exit_on_dead_worker": False, "log_format": "json",
    "log_level": "debug", "unknown_model": "refuse", "openai_token_ids": "model", "compress_min_bytes": 100,
    "slow_request_ms": 250.0, "dashboard": False, "tracing": True,
}  # fmt: skip
ONE_OF_TWO: list[dict[str, Any]] = [{"max_wait_ms": 1.5}, {"batching": False}]
"""These exclude each other."""


@pytest.mark.parametrize("by_environment", [False, True], ids=["as flags", "in the environment"])
def test_info_shows_every_setting_with_the_value_in_effect(serve: Serve, by_environment: bool) -> None:
    values = {**OTHER_THAN_DEFAULT, **ONE_OF_TWO[by_environment]}
    words = {name: {True: "on", False: "off"}.get(value, str(value)) for name, value in values.items()}
    brief = {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"}  # seconds to wait at the end for a collector that is not there
    if by_environment:
        told = {f"CONVOY_{name.upper()}": word for name, word in words.items()}
        server = serve(env={**told, **brief, "CONVOY_API_KEY": "k"})
    else:
        flags = [part for name, word in words.items() for part in (f"--{name.replace('_', '-')}", word)]
        server = serve(*flags, "--api-key", "k", env=brief)
    info = httpx.get(server.url + "/info", headers={"authorization": "Bearer k"}).json()
    shown = info["settings"]
    assert {name: shown[name] for name in values} == values
    assert shown["port"] == server.port
    secret, not_of_a_simulated_device = (
        {"api_key", "api_key_file", "cuda_visible_devices", "cuda_device_order"},
        {"revision", "default_prompt_name"},
    )
    untold = {name for one in ONE_OF_TWO for name in one} | {"port"} | not_of_a_simulated_device
    assert set(Settings.model_fields) - secret == set(shown) == {*OTHER_THAN_DEFAULT, *untold}
    for name, value in values.items():
        assert value != Settings.model_fields[name].default
    assert (info["model_id"], info["model"]["dimension"], info["model"]["workers"]) == ("mine", 6, 3)
    assert (info["scheduler"]["max_batch_tokens"], info["scheduler"]["target_batch_ms"]) == (777, 40)


def test_an_order_to_stop_finishes_lists_and_singles_of_both_lanes_and_takes_nothing_new(serve: Serve) -> None:
    server = serve("--model", "fake://?dim=8&base_ms=400&item_ms=0", "--max-batch-items", "64")
    inputs = [[f"{i} {k}" for k in range(1 if i % 4 else 9)] for i in range(160)]

    async def main() -> tuple[list[Answered], Answered]:
        async with Clients(server.url) as clients:
            calls = [asyncio.create_task(clients.ask(one)) for one in inputs]
            await server.until(server.accepted, sum(map(len, inputs)))
            assert waiting(server) > 0
            server.process.send_signal(signal.SIGTERM)
            await server.until(lambda: httpx.get(server.url + "/ready").status_code, 503)
            new = await clients.ask("new")  # before the accepted ones end: then nobody listens any more
            return await asyncio.gather(*calls), new

    answers, new = asyncio.run(main())
    assert [answer.status_code for answer in answers] == [200] * len(inputs)
    assert [len(answer.json()) for answer in answers] == [len(one) for one in inputs]
    assert new.status_code == 503
    assert server.process.wait(20) == 0
