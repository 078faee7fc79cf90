"""`POST /embed` as its clients see it, on a real server with a simulated device."""

import base64
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from tests.conftest import Serve
from tests.server import RunningServer

JSON = {"content-type": "application/json"}


def embed(client: httpx.Client, body: dict[str, Any], **headers: str) -> httpx.Response:
    return client.post("/embed", json=body, headers=headers)


def rows(client: httpx.Client, body: dict[str, Any]) -> list[list[float]]:
    answer = embed(client, body)
    assert answer.status_code == 200, answer.text
    found: list[list[float]] = answer.json()
    return found


# --- what goes in and comes out -------------------------------------------------------------------------------------


def test_one_text_or_several_give_a_row_each_in_order(client: httpx.Client) -> None:
    (one,) = rows(client, {"inputs": "a b"})
    assert len(one) == 8
    assert rows(client, {"inputs": ["a b", "c"]}) == [one, *rows(client, {"inputs": "c"})]
    assert rows(client, {"text": "a b"}) == [one]


def test_the_same_text_four_ways_gives_the_same_vector_bit_for_bit(client: httpx.Client) -> None:
    plain = np.array(rows(client, {"inputs": "some text"}), dtype="<f4")
    listed = np.array(rows(client, {"inputs": ["some text"]}), dtype="<f4")
    (encoded,) = embed(client, {"inputs": "some text", "encoding_format": "base64"}).json()
    raw = embed(client, {"inputs": "some text"}, accept="application/octet-stream")
    assert plain.tobytes() == listed.tobytes() == base64.b64decode(encoded) == raw.content


def test_a_raw_matrix_says_its_shape(client: httpx.Client) -> None:
    answer = embed(client, {"inputs": ["a", "b", "c"]}, accept="application/octet-stream")
    assert answer.headers["content-type"] == "application/octet-stream"
    shape = [int(n) for n in answer.headers["x-embedding-shape"].split(",")]
    matrix = np.frombuffer(answer.content, dtype=answer.headers["x-embedding-dtype"]).reshape(shape)
    np.testing.assert_array_equal(matrix, np.array(rows(client, {"inputs": ["a", "b", "c"]}), dtype="<f4"))


def test_null_for_an_option_is_its_default(client: httpx.Client) -> None:
    options = ("normalize", "truncate", "truncation_direction", "prompt_name", "dimensions", "encoding_format")
    nulls = dict.fromkeys(options)
    assert rows(client, {"inputs": "a", **nulls}) == rows(client, {"inputs": "a"})


def test_unknown_fields_are_ignored(client: httpx.Client) -> None:
    assert rows(client, {"inputs": "a", "model": "default"}) == rows(client, {"inputs": "a"})


def test_token_ids_come_as_one_list_or_a_list_of_lists(client: httpx.Client) -> None:
    (one,) = rows(client, {"inputs": [1, 2, 3]})
    assert rows(client, {"inputs": [[1, 2, 3], [4]]})[0] == one


def test_dimensions_cut_and_scale(client: httpx.Client) -> None:
    (row,) = rows(client, {"inputs": "a", "dimensions": 3})
    assert len(row) == 3
    assert np.linalg.norm(row) == pytest.approx(1, abs=1e-6)


def test_a_long_list_keeps_its_order(client: httpx.Client) -> None:
    texts = [f"text {i}" for i in range(1000)]
    found = rows(client, {"inputs": texts})
    assert found[::250] == [rows(client, {"inputs": text})[0] for text in texts[::250]]


def test_white_space_alone_is_a_text_like_any_other(client: httpx.Client) -> None:
    assert len(rows(client, {"inputs": " "})) == 1


# --- headers --------------------------------------------------------------------------------------------------------


def test_the_clients_own_request_id_comes_back_and_an_unsafe_one_is_replaced(client: httpx.Client) -> None:
    assert embed(client, {"inputs": "a"}, **{"x-request-id": "abc-123"}).headers["x-request-id"] == "abc-123"
    made = {embed(client, {"inputs": "a"}).headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    for unsafe in ("a b", "x" * 129, '"quoted"'):
        assert embed(client, {"inputs": "a"}, **{"x-request-id": unsafe}).headers["x-request-id"] != unsafe
    assert client.get("/nothing", headers={"x-request-id": "abc"}).headers["x-request-id"] == "abc"


def test_the_bill_adds_up_to_its_total_and_names_the_batch(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=20&item_ms=0")
    with server.client() as client:
        answer = embed(client, {"inputs": ["a", "b c"]})
    bill = {name: float(ms) for name, ms in re.findall(r"(\w+);dur=([\d.]+)", answer.headers["server-timing"])}
    assert list(bill) == ["parse", "tokenize", "queue", "forward", "respond", "total"]
    total = bill.pop("total")
    assert sum(bill.values()) == pytest.approx(total, abs=0.01)
    assert total >= bill["forward"] >= 20
    assert 'batch;desc="number=1 items=2 tokens=7 full=0% padding=0% waited=nothing"' in answer.headers["server-timing"]


def test_cut_inputs_are_counted_in_a_header(client: httpx.Client) -> None:
    long = "word " * 40
    assert embed(client, {"inputs": [long, "a", long]}).headers["x-truncated-inputs"] == "2"
    assert "x-truncated-inputs" not in embed(client, {"inputs": "a"}).headers
    left = rows(client, {"inputs": "a " + long, "truncation_direction": "Left"})
    assert left == rows(client, {"inputs": long})


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "error_type", "says"),
    [
        ({"inputs": ""}, "Empty", "inputs is empty"),
        ({"inputs": []}, "Empty", "inputs is an empty list"),
        ({"inputs": ["a", ""]}, "Empty", "inputs[1] is empty"),
        ({"inputs": [[]]}, "Empty", "inputs[0] is empty"),
        ({"text": ""}, "Validation", "text: String should have at least 1 character"),
        ({"inputs": None}, "Validation", "inputs: Input should be a valid string"),
        ({"inputs": {"a": 1}}, "Validation", "sentences are compared at POST /similarity"),
        ({"inputs": ["a", 3]}, "Validation", "inputs[1]: Input should be a valid string"),
        ({"inputs": ["a", None]}, "Validation", "inputs[1]"),
        ({"inputs": [1, "a"]}, "Validation", "inputs[1]: Input should be a valid integer"),
        ({"inputs": [[1], [2.5]]}, "Validation", "inputs[1][0]"),
        ({"inputs": [-1]}, "Validation", "inputs holds the token id -1; the model's vocabulary is 0 to 29999"),
        ({"inputs": [1] * 1025}, "Validation", "inputs holds 1025 token ids; the limit is 1024"),
        ({"inputs": [30000]}, "Validation", "inputs holds the token id 30000; the model's vocabulary is 0 to 29999"),
        ({"inputs": [[1], [30000]]}, "Validation", "inputs[1] holds the token id 30000"),
        ({"inputs": ["a"] * 2049}, "Validation", "inputs holds 2049 inputs; the limit is 2048"),
        ({"inputs": "a", "dimensions": 9}, "Validation", "dimensions is 9; the model has 8"),
        ({"inputs": "a", "dimensions": 0}, "Validation", "dimensions: Input should be greater than or equal to 1"),
        ({"inputs": "a", "dimensions": "8"}, "Validation", "dimensions: Input should be a valid integer"),
        ({"inputs": "a", "normalize": "yes"}, "Validation", "normalize: Input should be a valid boolean"),
        ({"inputs": "a", "truncation_direction": "up"}, "Validation", "truncation_direction: Input should be 'left'"),
        ({"inputs": "a", "encoding_format": "hex"}, "Validation", "encoding_format: Input should be 'float'"),
        ({"inputs": "a", "prompt_name": "nope"}, "Validation", "prompt_name is 'nope'"),
        ({"inputs": ["a", "w " * 30], "truncate": False}, "Validation", "inputs[1] has 32 tokens; the limit is 16"),
        ({"inputs": "a", "text": "b"}, "Validation", "send either inputs or text; both are given"),
        ({}, "Validation", "send either inputs or text; neither is given"),
    ],
)
def test_bad_input_names_the_field_its_problem_and_the_limit(
    client: httpx.Client, body: dict[str, Any], error_type: str, says: str
) -> None:
    answer = embed(client, body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()
    assert set(error) == {"error", "error_type"}
    assert error["error_type"] == error_type
    assert says in error["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b'{"inputs": "\xff"}',
        b'{"inputs": "\\ud800"}',
        b'{"inputs": "\\udc00\\ud800"}',
        b'{"inputs": NaN}',
        b"[" * 100_000,
        b'{"inputs": 1e999}',
        b'\xef\xbb\xbf{"inputs": 1}',
    ],
)
def test_what_is_not_json_of_the_right_form_is_a_422_in_json(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/embed", content=body, headers=JSON)
    assert answer.status_code == 422
    assert answer.json()["error_type"] == "Validation"


def test_another_content_type_is_refused_and_json_in_other_clothes_is_not(client: httpx.Client) -> None:
    body = b'{"inputs": "a"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = client.post("/embed", content=body, headers={"content-type": kind})
        assert (answer.status_code, answer.json()["error_type"]) == (415, "UnsupportedMediaType")
    for kind in ("application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"):
        assert client.post("/embed", content=body, headers={"content-type": kind}).status_code == 200
    assert client.post("/embed", content=body).status_code == 200


def test_wrong_paths_and_methods_are_json_too(client: httpx.Client) -> None:
    answer = client.get("/embed")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error_type"] == "MethodNotAllowed"
    answer = client.post("/health")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    answer = client.get("/nothing/here")
    assert (answer.status_code, answer.json()["error_type"]) == (404, "NotFound")
    assert client.post("/docs").json()["error_type"] == "MethodNotAllowed"
    assert client.head("/health").status_code == 200


def exchange(server: RunningServer, request: bytes) -> bytes:
    """Send bytes as they are, and read until the server closes or falls silent."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=2) as sock:
        sock.sendall(request)
        try:
            while received := sock.recv(65536):
                answer += received
        except TimeoutError:
            pass
    return answer


@pytest.mark.parametrize("offer", [b"Upgrade: h2c", b"upgrade: websocket", b"UPGRADE: other/1"])
def test_an_offer_to_upgrade_is_ignored_and_the_request_is_served(fake_server: RunningServer, offer: bytes) -> None:
    body = b'{"inputs": "a"}'
    request = (
        b"POST /embed HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n%b\r\n"
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (offer, len(body), body)
    )
    assert exchange(fake_server, request).startswith(b"HTTP/1.1 200")


def test_what_looks_like_an_offer_in_a_body_is_left_as_it_is(fake_server: RunningServer) -> None:
    first, rest = b'"a"', b'\r\nUpgrade: x\r\n"b"'
    head = b"POST /embed/stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    answer = b""
    with socket.create_connection(("127.0.0.1", fake_server.port), timeout=30) as connection:
        connection.sendall(head % len(first + rest) + first)
        time.sleep(0.1)  # so that the rest comes by itself
        connection.sendall(rest)
        while part := connection.recv(65_536):
            answer += part
    assert b'{"index":1,"error":' in answer
    assert b'{"index":2,"embedding":' in answer, answer


@pytest.mark.parametrize("request_bytes", [b"NONSENSE\r\n\r\n", b"POST /embed HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
def test_what_is_not_http_is_refused_in_json_too(fake_server: RunningServer, request_bytes: bytes) -> None:
    head, _, body = exchange(fake_server, request_bytes).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error_type"] == "BadRequest"


def test_a_path_that_only_resembles_ours_is_not_found(client: httpx.Client) -> None:
    for path in ("/embed%0A", "/embed/", "/x/embed"):
        answer = client.post(path, json={"inputs": "a"})
        assert (answer.status_code, answer.json()["error_type"]) == (404, "NotFound"), path


def test_a_long_list_with_an_early_mistake_is_refused_for_that_mistake(client: httpx.Client) -> None:
    for body in (["a", *[1] * 200_000], [1, *["a"] * 200_000], [[1], *[["a"]] * 100_000]):
        answer = embed(client, {"inputs": body})
        assert answer.status_code == 422
        assert answer.json()["error"].startswith("inputs[1]")


def test_a_failure_of_the_model_is_opaque_and_its_cause_is_in_the_log(
    client: httpx.Client, fake_server: RunningServer
) -> None:
    answer = embed(client, {"inputs": "a BAD text"}, **{"x-request-id": "find-me"})
    assert answer.status_code == 500
    assert answer.json()["error_type"] == "Backend"
    assert "find-me" in answer.json()["error"]
    assert "BAD" not in answer.json()["error"]
    log = fake_server.log()
    assert "find-me" in log
    assert "The simulated device fails on 'BAD'" in log


# --- bodies beyond the limit ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_limit() -> Iterator[RunningServer]:
    from tests.server import running_server

    with running_server("--model", "fake://?dim=8&base_ms=0", "--max-body-bytes", "2000") as server:
        yield server


def test_a_body_of_just_the_limit_is_served_and_one_byte_more_is_not(small_limit: RunningServer) -> None:
    with small_limit.client() as client:
        body = json.dumps({"inputs": "x" * 1985}).encode()
        assert len(body) == 2000 - 1
        assert client.post("/embed", content=body + b" ", headers=JSON).status_code == 200
        answer = client.post("/embed", content=body + b"  ", headers=JSON)
        assert answer.status_code == 413
        assert answer.json() == {
            "error": "The body is larger than 2000 bytes, the limit (--max-body-bytes); send it in parts.",
            "error_type": "TooLarge",
        }


def test_a_large_body_gets_its_413_whole_even_while_the_client_is_still_sending(small_limit: RunningServer) -> None:
    with small_limit.client() as client:
        assert client.post("/embed", content=b"x" * 3_000_000, headers=JSON).status_code == 413

        def chunks() -> Iterator[bytes]:
            for _ in range(50):
                yield b"x" * 10_000

        answer = client.post("/embed", content=chunks(), headers=JSON)
        assert answer.status_code == 413
        assert embed(client, {"inputs": "a"}).status_code == 200


def test_a_body_that_stops_coming_is_answered_with_408(serve: Serve) -> None:
    server = serve("--model", "fake://", "--request-timeout-ms", "300")
    head = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    answer = exchange(server, head + b'{"inputs"')
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"error_type":"Timeout"' in answer


def test_an_endless_body_is_not_read_to_its_end(small_limit: RunningServer) -> None:
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", small_limit.port), timeout=20) as sock:
        sock.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        sock.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        answer, chunk = b"", b"3e8\r\n" + b"x" * 1000 + b"\r\n"
        sock.settimeout(0.01)
        while time.monotonic() - started < 15:
            try:
                sock.sendall(chunk)
                received = sock.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                break
            if not received:
                break
            answer += received
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer
    assert time.monotonic() - started < 10


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def locked() -> Iterator[RunningServer]:
    from tests.server import running_server

    with running_server("--model", "fake://?dim=8&base_ms=0", env={"CONVOY_API_KEY": "s3cret"}) as server:
        yield server


def test_without_the_key_everything_but_health_readiness_and_metrics_is_401(locked: RunningServer) -> None:
    with locked.client() as client:
        calls: list[Callable[[dict[str, str]], httpx.Response]] = [
            lambda headers: client.post("/embed", json={"inputs": "a"}, headers=headers),
            lambda headers: client.get("/info", headers=headers),
            lambda headers: client.get("/docs", headers=headers),
            lambda headers: client.get("/openapi.json", headers=headers),
        ]
        for call in calls:
            for wrong in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
                answer = call(wrong)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
                assert answer.json()["error_type"] == "Unauthorized"
            for right in ("Bearer s3cret", "bearer s3cret"):
                assert call({"authorization": right}).status_code == 200
        assert client.get("/nothing").status_code == 401
        for path in ("/health", "/ready", "/metrics"):
            assert client.get(path).status_code == 200
    assert "s3cret" not in locked.log()
    assert "-H 'authorization: Bearer '\"$CONVOY_API_KEY\"" in locked.log()


def test_metrics_can_be_put_behind_the_key_as_well(serve: Serve, tmp_path: Any) -> None:
    key = tmp_path / "key"
    key.write_text("k3y\n")
    server = serve("--model", "fake://", "--api-key-file", str(key), "--protect-metrics", "on")
    with server.client() as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"authorization": "Bearer k3y"}).status_code == 200
        assert client.get("/health").status_code == 200


def test_headers_that_do_not_end_cost_the_connection(fake_server: RunningServer) -> None:
    def send_on(connection: socket.socket) -> None:
        for _ in range(2000):
            connection.sendall(b"a" * 65_536)
            time.sleep(0.001)

    with socket.create_connection(("127.0.0.1", fake_server.port), timeout=30) as connection:
        connection.sendall(b"POST /embed HTTP/1.1\r\nhost: x\r\nx-long: ")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_on(connection)
