"""Ollama's protocol, on a real server with a simulated device."""

from typing import Any

import httpx
import pytest


def vectors(client: httpx.Client, inputs: Any) -> Any:
    return client.post("/embed", json={"inputs": inputs}).json()


def test_embed_answers_in_the_published_form(client: httpx.Client) -> None:
    asked = {"model": "all-minilm:latest", "input": ["a b", "c"], "truncate": True, "keep_alive": "5m", "options": {}}
    body = client.post("/api/embed", json=asked).json()
    assert body.keys() == {"model", "embeddings", "total_duration", "load_duration", "prompt_eval_count"}
    assert body["model"] == "fake"
    assert body["embeddings"] == vectors(client, ["a b", "c"])
    assert body["prompt_eval_count"] == 7
    assert body["total_duration"] > 0


def test_one_text_and_dimensions(client: httpx.Client) -> None:
    body = client.post("/api/embed", json={"model": "m", "input": "a", "dimensions": 3}).json()
    assert [len(row) for row in body["embeddings"]] == [3]


def test_the_older_form(client: httpx.Client) -> None:
    body = client.post("/api/embeddings", json={"model": "m", "prompt": "a b"}).json()
    assert body == {"embedding": vectors(client, "a b")[0]}


def test_truncation_can_be_refused(client: httpx.Client) -> None:
    long = "word " * 40
    assert client.post("/api/embed", json={"model": "m", "input": long}).headers["x-truncated-inputs"] == "1"
    refused = client.post("/api/embed", json={"model": "m", "input": long, "truncate": False})
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("input has 42 tokens")


def test_tags_and_version(client: httpx.Client) -> None:
    (model,) = client.get("/api/tags").json()["models"]
    assert (model["name"], model["model"]) == ("fake", "fake")
    assert client.get("/api/version").json() == {"version": client.get("/info").json()["version"]}


@pytest.mark.parametrize(("path", "field"), [("/api/embed", "input"), ("/api/embeddings", "prompt")])
def test_errors_are_a_sentence(client: httpx.Client, path: str, field: str) -> None:
    for body in ({"model": "m"}, {"model": "m", field: ""}, {"model": "m", field: None}):
        answer = client.post(path, json=body)
        assert answer.status_code == 422
        assert answer.json().keys() == {"error"}
        assert field in answer.json()["error"]
    assert client.get("/api/nothing").json().keys() == {"error"}


def test_a_bad_text_is_told_with_its_place(client: httpx.Client) -> None:
    assert client.post("/api/embed", json={"model": "m", "input": ["a", 3]}).json()["error"].startswith("input[1]")
