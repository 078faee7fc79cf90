"""OpenAI's protocol field by field, on a real server with a simulated device."""

import base64
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from tests.conftest import Serve


def ask(client: httpx.Client, path: str = "/v1/embeddings", **body: Any) -> httpx.Response:
    return client.post(path, json=body)


def vectors(client: httpx.Client, inputs: Any) -> Any:
    return client.post("/embed", json={"inputs": inputs}).json()


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embeddings"])
def test_an_answer_has_every_field_of_the_published_form(client: httpx.Client, path: str) -> None:
    answer = ask(client, path, input=["a b", "c"], model="text-embedding-3-small")
    assert answer.status_code == 200
    body = answer.json()
    assert body.keys() == {"object", "data", "model", "usage"}
    assert (body["object"], body["model"]) == ("list", "fake")
    assert [one.keys() for one in body["data"]] == [{"object", "index", "embedding"}] * 2
    assert [(one["object"], one["index"]) for one in body["data"]] == [("embedding", 0), ("embedding", 1)]
    assert [one["embedding"] for one in body["data"]] == vectors(client, ["a b", "c"])
    assert body["usage"] == {"prompt_tokens": 7, "total_tokens": 7}, "words, and two special tokens each"


def test_one_text_is_a_list_of_one(client: httpx.Client) -> None:
    (one,) = ask(client, input="a b").json()["data"]
    assert [one["embedding"]] == vectors(client, "a b")


def test_base64_is_little_endian_float32(client: httpx.Client) -> None:
    data = ask(client, input=["a b", "c"], encoding_format="base64").json()["data"]
    rows = np.stack([np.frombuffer(base64.b64decode(one["embedding"]), dtype="<f4") for one in data])
    np.testing.assert_array_equal(rows, np.array(vectors(client, ["a b", "c"]), dtype="<f4"))


def test_many_rows_keep_their_index(serve: Serve) -> None:
    server = serve("--model", "fake://?dim=384&base_ms=0&item_ms=0")
    with server.client() as client:
        texts = [f"text {i}" for i in range(200)]
        data = ask(client, input=texts).json()["data"]
        assert [one["index"] for one in data] == list(range(200))
        assert [one["embedding"] for one in data] == vectors(client, texts)


def test_nulls_are_the_defaults_and_unknown_fields_are_ignored(client: httpx.Client) -> None:
    nulls: dict[str, Any] = dict.fromkeys(("model", "encoding_format", "dimensions", "user", "input_type"))
    assert ask(client, input="x", **nulls, novelty=1).json() == ask(client, input="x").json()


def test_dimensions_are_cut_and_brought_to_unit_length(client: httpx.Client) -> None:
    (one,) = ask(client, input="a", dimensions=3).json()["data"]
    assert len(one["embedding"]) == 3
    assert np.linalg.norm(one["embedding"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"input": ""}, "input", "is empty"),
        ({"input": []}, "input", "empty list"),
        ({"input": ["a", ""]}, "input[1]", "is empty"),
        ({"input": None}, "input", "valid string"),
        ({}, "input", "required"),
        ({"input": ["a", 3]}, "input[1]", "valid string"),
        ({"input": "a", "dimensions": 9}, "dimensions", "1 to 8"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "'float' or 'base64'"),
        ({"input": "a", "input_type": "poem"}, "input_type", "must be one of query"),
    ],
)
def test_a_bad_request_is_told_in_openais_form(client: httpx.Client, body: Any, param: str, says: str) -> None:
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert answer.json().keys() == {"error"}
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, None)
    assert param in error["message"]
    assert says in error["message"]


@pytest.mark.parametrize("ids", [[1, 2], [[1, 2], [3]], [15339, 1917]])
def test_token_ids_are_refused_with_the_option_to_switch(client: httpx.Client, ids: Any) -> None:
    answer = ask(client, input=ids)
    assert answer.status_code == 422
    assert "check_embedding_ctx_length=False" in answer.json()["error"]["message"]


def test_token_ids_are_taken_where_they_are_said_to_be_the_models_own(serve: Serve) -> None:
    server = serve("--model", "fake://?dim=8&base_ms=0&item_ms=0", "--openai-token-ids", "model")
    with server.client() as client:
        data = ask(client, input=[[1, 2], [3]]).json()["data"]
        assert [one["embedding"] for one in data] == vectors(client, [[1, 2], [3]])
        assert len(ask(client, input=[1, 2]).json()["data"]) == 1


def test_models_are_listed_and_found_by_name(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=0", "--served-model-name", "owner/some-model")
    with server.client() as client:
        listed = client.get("/v1/models").json()
        (model,) = listed["data"]
        assert listed.keys() == {"object", "data"}
        assert model.keys() == {"id", "object", "created", "owned_by"}
        assert (model["id"], model["object"], model["owned_by"]) == ("owner/some-model", "model", "owner")
        for name in ("owner/some-model", "some-model"):
            assert client.get(f"/v1/models/{name}").json() == model
        missing = client.get("/v1/models/other/model")
        assert missing.status_code == 404
        assert missing.json()["error"]["code"] == "model_not_found"


def test_an_unknown_model_is_refused_where_that_is_wanted(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=0", "--served-model-name", "owner/it", "--unknown-model", "refuse")
    with server.client() as client:
        answer = ask(client, input="a", model="text-embedding-3-small")
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == ("model", "model_not_found")
        assert "owner/it" in error["message"]
        for name in ("owner/it", "it", "it:latest", None):
            assert ask(client, input="a", model=name).status_code == 200
        assert client.post("/api/embed", json={"model": "llama", "input": "a"}).json().keys() == {"error"}


def test_every_kind_of_error_has_openais_form(serve: Serve) -> None:
    server = serve(
        "--model", "fake://?base_ms=300&item_ms=0&fail_on=BAD", "--api-key", "secret", "--max-queue-items", "8",
        "--max-inputs", "8", "--max-body-bytes", "2000",
    )  # fmt: skip
    with server.client() as client:
        wrong = ask(client, input="a")
        assert wrong.status_code == 401
        assert wrong.headers["www-authenticate"] == "Bearer"
        assert wrong.json()["error"]["code"] == "invalid_api_key"
        client.headers["authorization"] = "Bearer secret"
        unknown = client.get("/v1/nothing")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_url")
        assert client.get("/v1/embeddings").status_code == 405
        assert client.get("/v1/embeddings").json()["error"]["type"] == "invalid_request_error"
        large = ask(client, input="a" * 3000)
        assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")
        failed = ask(client, input="BAD")
        assert (failed.status_code, failed.json()["error"]["type"]) == (500, "server_error")
        late = client.post("/v1/embeddings", json={"input": "a"}, headers={"X-Request-Timeout-Ms": "20"})
        assert late.status_code in (429, 504)
        assert set(late.json()["error"]) == {"message", "type", "param", "code"}


def test_a_shed_request_says_when_to_come_back(serve: Serve) -> None:
    server = serve("--model", "fake://?base_ms=300&item_ms=0", "--max-queue-items", "4", "--max-inputs", "4")
    with server.client() as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: ask(client, input=[f"{i} {j}" for j in range(4)]), range(8)))
    shed = [answer for answer in answers if answer.status_code == 429]
    assert shed
    for answer in shed:
        assert answer.json()["error"]["code"] == "rate_limit_exceeded"
        assert int(answer.headers["retry-after"]) >= 1
        assert 0 < int(answer.headers["retry-after-ms"]) <= 1000 * int(answer.headers["retry-after"])


def test_while_the_model_loads_nothing_is_said_of_models(serve: Serve) -> None:
    server = serve("--unknown-model", "refuse", ready=False)
    with server.client() as client:
        answers = [ask(client, input="a", model="some-model"), client.get("/v1/models")]
    assert [answer.status_code for answer in answers] == [503, 503]
    assert all(answer.json()["error"]["code"] == "service_unavailable" for answer in answers)
