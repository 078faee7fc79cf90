"""The service as a process: readiness, overload, faults, people who leave, and its end. Simulated device, real port."""

import asyncio
import json
import re
import shlex
import signal
import socket
import subprocess
import time

import httpx
import pytest

from tests.conftest import Serve
from tests.server import Answered

ANSWERED = 'convoy_items_total{lane="interactive",outcome="answered"}'
ABANDONED = 'convoy_items_total{lane="interactive",outcome="abandoned"}'


# --- before the first request ---------------------------------------------------------------------------------------


def test_every_series_is_there_at_zero_right_after_the_start(serve: Serve) -> None:
    text = httpx.get(serve("--model", "fake://").url + "/metrics").text
    for series in (
        'convoy_requests_total{route="/embed",status="200"}',
        'convoy_requests_total{route="/embed",status="429"}',
        'convoy_requests_total{route="/embed",status="504"}',
        'convoy_items_total{lane="interactive",outcome="answered"}',
        'convoy_items_total{lane="interactive",outcome="shed"}',
        'convoy_items_total{lane="interactive",outcome="expired"}',
        'convoy_items_total{lane="interactive",outcome="abandoned"}',
        'convoy_items_total{lane="interactive",outcome="failed"}',
        'convoy_queue_items{lane="interactive"}',
        'convoy_queue_items{lane="bulk"}',
        'convoy_queue_tokens{lane="interactive"}',
        "convoy_batch_items_count",
        "convoy_batch_tokens_count",
        'convoy_wait_seconds_count{lane="interactive"}',
        'convoy_wait_seconds_count{lane="bulk"}',
        "convoy_tokenize_seconds_count",
        'convoy_request_seconds_count{route="/embed"}',
        "convoy_batch_splits_total",
        "convoy_out_of_memory_total",
        "convoy_workers_lost_total",
        "convoy_item_failures_total",
        "convoy_truncated_inputs_total",
    ):
        assert f"\n{series} 0.0\n" in text, series
    assert "\nconvoy_ready 1.0\n" in text


def test_info_shows_the_values_in_effect_and_no_secret(serve: Serve) -> None:
    server = serve(
        "--model", "fake://?dim=5", "--max-batch-items", "3", "--batching", "off", "--max-queue-items", "5000",
        "--served-model-name", "mine", "--api-key", "s3cret", "--request-timeout-ms", "1234",
    )  # fmt: skip
    answer = httpx.get(server.url + "/info", headers={"authorization": "Bearer s3cret"})
    info = answer.json()
    assert info["model_id"] == info["model"]["name"] == "mine"
    assert info["model"]["dimension"] == 5
    assert info["model"]["details"]["simulated"] is True
    settings = info["settings"]
    assert (settings["max_batch_items"], settings["batching"], settings["max_queue_items"]) == (3, False, 5000)
    assert settings["request_timeout_ms"] == 1234
    assert "s3cret" not in answer.text
    assert "this is a simulated device" in server.log()


def test_the_port_opens_at_once_and_readiness_waits_for_the_model(serve: Serve) -> None:
    server = serve("--warmup", "quick", ready=False)  # the real model takes seconds to load
    with server.client() as client:
        assert client.get("/health").status_code == 200
        early = client.get("/ready")
        assert early.status_code == 503
        assert early.json()["error_type"] == "Unhealthy"
        assert int(early.headers["retry-after"]) >= 1
        refused = client.post("/embed", json={"inputs": "a"})
        assert refused.status_code == 503
        assert "still loading" in refused.json()["error"]
        assert client.get("/info").json()["state"] == "loading"
        end = time.monotonic() + 120
        while client.get("/ready").status_code != 200:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert client.post("/embed", json={"inputs": "a"}).status_code == 200


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--max-inputs", "0"], 2, "--max-inputs"),
        (["--model", "fake://?dim=none"], 1, "dim"),
        (["--model", "/no/such/folder"], 1, "no such folder"),
        (["--device", "cuda:7"], 1, "cuda:7"),
    ],
)
def test_a_start_that_must_fail_ends_with_a_sentence_and_a_code(
    flags: list[str], code: int, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "app", "serve", "--port", "0", *flags], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


# --- many at once ---------------------------------------------------------------------------------------------------


def test_concurrent_requests_share_batches_and_without_batching_none_does(serve: Serve) -> None:
    texts = [f"text {i}" for i in range(60)]
    batched, single = serve("--model", "fake://?base_ms=20"), serve("--model", "fake://?base_ms=1", "--batching", "off")
    for server, most in ((batched, 10), (single, 60)):
        assert all(answer.status_code == 200 for answer in server.embed_all(*texts))
        assert server.metric("convoy_batch_items_sum") == 60
        assert server.metric("convoy_batch_items_count") <= most
    assert single.metric("convoy_batch_items_count") == 60


@pytest.mark.parametrize("workers", ["1", "3"])
def test_every_caller_gets_its_own_row(serve: Serve, workers: str) -> None:
    server = serve("--model", "fake://?dim=8&base_ms=2", "--workers", workers)
    texts = [f"text {i} " + "word " * (i % 50) for i in range(500)]
    answers = server.embed_all(*texts)
    alone = serve("--model", "fake://?dim=8&base_ms=0")
    with alone.client() as client:
        for text, answer in list(zip(texts, answers, strict=True))[::25]:
            assert answer.json() == client.post("/embed", json={"inputs": text}).json()
    assert len({answer.content for answer in answers}) == 500


def test_a_flood_beyond_the_queue_gets_answers_or_429_and_afterwards_all_is_well(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=30", "--max-queue-items", "5", "--max-inputs", "5")
    answers = server.embed_all(*[["a"] * 5] * 40, *["single"] * 60)
    statuses = {answer.status_code for answer in answers}
    assert statuses == {200, 429}
    for answer in answers:
        if answer.status_code == 429:
            assert answer.json()["error_type"] == "Overloaded"
            assert int(answer.headers["retry-after"]) >= 1
    with server.client() as client:
        assert client.post("/embed", json={"inputs": ["a"] * 5}).status_code == 200
    assert server.metric('convoy_items_total{lane="interactive",outcome="shed"}') > 0
    assert server.metric('convoy_queue_items{lane="interactive"}') == 0


def test_health_answers_at_once_while_long_batches_run_and_no_embed_fails(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=400")

    async def main() -> tuple[list[float], list[Answered]]:
        async with server.crowd() as crowd:
            embeds = [asyncio.create_task(crowd.embed(f"text {i}")) for i in range(40)]
            await asyncio.sleep(0.1)

            async def health() -> float:
                answer = await crowd.get("/health")
                assert answer.status_code == 200
                return answer.seconds

            await asyncio.gather(*[health() for _ in range(50)])  # opens the connections
            times = await asyncio.gather(*[health() for _ in range(50)])
            return list(times), await asyncio.gather(*embeds)

    times, embeds = asyncio.run(main())
    assert all(answer.status_code == 200 for answer in embeds)
    times.sort()
    assert times[len(times) // 2] < 0.2, "health waits for the device"


def test_lists_longer_than_a_batch_are_split_inside(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=1", "--max-batch-items", "32", "--max-inputs", "1000")
    with server.client() as client:
        for count in (33, 129, 1000):
            answer = client.post("/embed", json={"inputs": [f"t {i}" for i in range(count)]})
            assert answer.status_code == 200
            assert len(answer.json()) == count
            assert f"batches={-(-count // 32)}" in answer.headers["server-timing"]
        refused = client.post("/embed", json={"inputs": ["a"] * 1001})
        assert refused.status_code == 422
        assert "the limit is 1000" in refused.json()["error"]


def test_a_text_above_the_budget_holds_nobody_up(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=5&max_tokens=100", "--max-batch-tokens", "20")
    long, short = server.embed_all("word " * 5000, "hi")
    assert (long.status_code, short.status_code) == (200, 200)
    assert long.headers["x-truncated-inputs"] == "1"


# --- when things go wrong -------------------------------------------------------------------------------------------


def test_one_bad_text_among_good_ones_fails_alone(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=30&fail_on=BAD")
    answers = server.embed_all(*[f"good {i}" for i in range(20)], "BAD", *[f"fine {i}" for i in range(11)])
    assert [answer.status_code for answer in answers] == [200] * 20 + [500] + [200] * 11
    assert server.embed_all("next")[0].status_code == 200


def test_running_out_of_memory_splits_and_lowers_the_budget_and_answers_all(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=20&oom_above=4")
    before = server.metric("convoy_max_batch_tokens")
    answers = server.embed_all(*[f"text {i}" for i in range(40)])
    assert {answer.status_code for answer in answers} == {200}
    assert server.metric("convoy_out_of_memory_total") >= 1
    assert server.metric("convoy_max_batch_tokens") < before
    assert httpx.get(server.url + "/info").json()["scheduler"]["max_batch_tokens"] < before


def test_a_row_that_is_not_finite_is_an_error_for_its_text_alone_and_readiness_fails_when_it_repeats(
    serve: Serve,
) -> None:
    server = serve("--model", "fake://?base_ms=10&nan_on=NAN")
    answers = server.embed_all("a", "NAN", "b")
    assert [answer.status_code for answer in answers] == [200, 500, 200]
    assert httpx.get(server.url + "/ready").status_code == 200

    broken = serve("--model", "fake://?base_ms=1&nan_on=e")  # the probe has an e in it too
    for _ in range(3):
        assert httpx.get(broken.url + "/ready").status_code == 200
        assert broken.embed_all("every")[0].status_code == 500
    answer = httpx.get(broken.url + "/ready")
    assert answer.status_code == 503
    assert "keeps failing" in answer.json()["error"]
    assert broken.embed_all("all good")[0].status_code == 200
    assert httpx.get(broken.url + "/ready").status_code == 200


def test_a_dead_worker_fails_readiness_at_once_and_leaves_nobody_waiting(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=50&die_on=DIE", "--exit-on-dead-worker", "off", "--max-batch-items", "1")
    answers = server.embed_all("DIE", *[f"waiting {i}" for i in range(10)])
    assert {answer.status_code for answer in answers} <= {200, 500, 503}
    assert 503 in {answer.status_code for answer in answers}
    with server.client() as client:
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 503
        assert client.post("/embed", json={"inputs": "a"}).status_code == 503
        assert client.get("/metrics").status_code == 200
    assert server.metric("convoy_workers_lost_total") == 1


def test_a_dead_worker_ends_the_process_with_a_clear_message_by_default(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=50&die_on=DIE", "--max-batch-items", "1")
    answers = server.embed_all("DIE", "waiting", "too")
    assert all(answer.status_code in (200, 500, 503) for answer in answers)
    assert server.process.wait(20) == 1
    assert "the service cannot go on" in server.log()


def test_one_dead_worker_of_three_leaves_the_service_standing(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=20&die_on=DIE", "--workers", "3", "--max-batch-items", "1")
    answers = server.embed_all("DIE", *[f"text {i}" for i in range(10)])
    assert [answer.status_code for answer in answers] == [500] + [200] * 10
    assert httpx.get(server.url + "/ready").status_code == 200


def test_a_request_that_takes_too_long_is_answered_with_504_on_time(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=3000", "--request-timeout-ms", "300")
    (answer,) = server.embed_all("a")
    assert answer.status_code == 504
    assert answer.json()["error_type"] == "Timeout"
    assert answer.seconds < 2.5
    assert server.metric('convoy_items_total{lane="interactive",outcome="expired"}') == 1


# --- people who leave -----------------------------------------------------------------------------------------------


def test_the_work_of_clients_that_leave_never_reaches_the_device(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=1000", "--max-batch-items", "4", "--request-timeout-ms", "300000")

    async def leave() -> None:
        async with server.crowd() as crowd:
            calls = [asyncio.create_task(crowd.embed(f"leaves {i}")) for i in range(500)]
            await server.until(server.accepted, 500)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(leave())
    asyncio.run(server.until(lambda: server.metric(ABANDONED), 500 - 4))
    (after,) = server.embed_all("stays")
    assert after.status_code == 200
    assert server.metric("convoy_batch_items_sum") <= 4 + 4 + 1
    assert server.metric('convoy_requests_total{route="/embed",status="499"}') >= 496


def test_a_client_that_leaves_between_dispatch_and_answer_breaks_nothing(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=300")

    async def leave() -> None:
        async with server.crowd() as crowd:
            call = asyncio.create_task(crowd.embed("leaves"))
            await server.until(lambda: server.metric("convoy_batch_items_count"), 1)
            call.cancel()

    asyncio.run(leave())
    asyncio.run(server.until(lambda: server.metric(ABANDONED), 1))
    assert server.embed_all("stays")[0].status_code == 200


def test_a_pipelining_client_that_leaves_breaks_nothing_and_is_counted(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=300")
    body = b'{"inputs": "a"}'
    head = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall((head + body) * 2)
        asyncio.run(server.until(lambda: server.metric("convoy_batch_items_count"), 1))
    left = 'convoy_requests_total{route="/embed",status="499"}'
    asyncio.run(server.until(lambda: server.metric(left), 1))
    assert server.embed_all("stays")[0].status_code == 200
    assert "Traceback" not in server.log()
    assert "could not be sent" not in server.log(), "the first one was told that its client had left"


# --- the end --------------------------------------------------------------------------------------------------------


def test_sigterm_with_200_in_flight_answers_all_refuses_new_ones_and_exits_with_0(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=2000")

    async def main() -> tuple[list[Answered], Answered, Answered]:
        async with server.crowd() as crowd:
            await crowd.get("/ready")  # this connection stays open for the new request
            calls = [asyncio.create_task(crowd.embed(f"text {i}")) for i in range(200)]
            await server.until(server.accepted, 200)
            server.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.2)
            new, ready = await crowd.embed("new"), await crowd.get("/ready")
            return await asyncio.gather(*calls), new, ready

    answers, new, ready = asyncio.run(main())
    assert [answer.status_code for answer in answers] == [200] * 200
    assert (new.status_code, ready.status_code) == (503, 503)
    assert int(new.headers["retry-after"]) >= 1
    assert "shutting down" in new.json()["error"]
    assert server.process.wait(20) == 0


def test_a_drain_that_takes_too_long_tells_those_who_wait_and_ends_in_time(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=10000", "--drain-timeout-s", "0.5")

    async def main() -> Answered:
        async with server.crowd() as crowd:
            call = asyncio.create_task(crowd.embed("a"))
            await server.until(lambda: server.metric("convoy_batch_items_count"), 1)
            server.process.send_signal(signal.SIGTERM)
            return await call

    started = time.monotonic()
    answer = asyncio.run(main())
    assert (answer.status_code, answer.json()["error_type"]) == (503, "Unhealthy")
    assert server.process.wait(30) == 0
    assert time.monotonic() - started < 9, "it waited for the thread inside the model"
    assert "the drain ran out of time" in server.log()


def test_sigterm_while_the_model_loads_ends_cleanly(serve: Serve) -> None:
    server = serve(ready=False)
    time.sleep(4)  # in the middle of importing torch, or of loading the weights
    assert server.stop() == 0
    assert "Traceback" not in server.log()
    assert "terminate called" not in server.log()


def test_logs_in_json_are_one_object_a_line(serve: Serve) -> None:
    server = serve("--model", "fake://?fail_on=BAD", "--log-format", "json")
    server.embed_all("BAD")
    for line in server.log().splitlines():
        assert {"event", "level", "timestamp"} <= set(json.loads(line)), line


@pytest.mark.parametrize(("model", "rows"), [("dim=3", 1), ("labels=1", 2), ("labels=3", 3)])
def test_the_command_to_try_that_is_logged_works(serve: Serve, model: str, rows: int) -> None:
    server = serve("--model", f"fake://?{model}")
    found = re.search(r"try it: (curl .*)$", server.log(), re.MULTILINE)
    assert found
    done = subprocess.run([*shlex.split(found[1]), "-s"], capture_output=True, text=True, timeout=20)
    assert len(json.loads(done.stdout)) == rows, done.stdout
