"""The OpenAPI document, held against a real server by generated requests."""

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.conftest import Serve

SCHEMATHESIS = """
[generation]
allow-extra-parameters = false  # a header that is not described is no fault of a request: HTTP says to ignore it

[checks]
not_a_server_error.expected-statuses = ["2xx", "4xx", "504"]  # a request may ask for an answer within 1 ms
negative_data_rejection.expected-statuses = ["401", "404", "405", "408", "413", "415", "422", "424", "429", "5xx"]
positive_data_acceptance.expected-statuses = ["2xx", "404", "424", "5xx"]  # nor need the model be of the right kind
"""


CLASSIFIERS = ["/rerank", "/v1/rerank", "/v2/rerank", "/predict", "/embed"]
"""The paths that answer otherwise where a classifier is served."""


@pytest.mark.parametrize(("model", "path"), [("", "/embed"), ("&labels=1", "/rerank"), ("&labels=3", "/predict")])
def test_every_answer_is_as_documented_and_none_is_a_5xx(serve: Serve, tmp_path: Path, model: str, path: str) -> None:
    server = serve("--model", "fake://?base_ms=0&item_ms=0" + model, "--max-inputs", "20")
    (tmp_path / "schemathesis.toml").write_text(SCHEMATHESIS)
    command = [
        str(Path(sys.executable).parent / "schemathesis"), "run", server.url + "/openapi.json",
        *(["--include-path-regex", f"^({'|'.join(CLASSIFIERS)})$"] if model else []),
        "--exclude-path", "/embed/stream",  # of a body made of lines the generator knows nothing
        "--checks", "all", "--max-examples", "40", "--generation-deterministic", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    described = sum(len(methods) for methods in httpx.get(server.url + "/openapi.json").json()["paths"].values())
    assert f"{len(CLASSIFIERS) if model else described - 1} selected / {described} total" in done.stdout
    assert server.metric(f'convoy_requests_total{{route="{path}",status="200"}}') > 20
    assert server.metric(f'convoy_requests_total{{route="{path}",status="422"}}') > 20


def test_the_document_describes_every_route_and_its_examples_work(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) == {
        "/", "/embed", "/embed/stream", "/embed_all", "/similarity", "/tokenize", "/decode", "/predict", "/rerank",
        "/v1/embeddings", "/embeddings", "/v1/models", "/models", "/v1/models/{model}", "/models/{model}",
        "/v1/rerank", "/v2/rerank",
        "/api/embed", "/api/embeddings", "/api/tags", "/api/version",
        "/health", "/ready", "/info", "/metrics",
    }  # fmt: skip
    embed = document["paths"]["/embed"]["post"]
    assert set(embed["responses"]) == {"200", "401", "408", "413", "415", "422", "424", "429", "500", "503", "504"}
    examples = embed["requestBody"]["content"]["application/json"]["examples"]
    assert examples
    for example in examples.values():
        body = example["value"]
        body["dimensions"] = min(8, body.get("dimensions", 8))  # the simulated model has no more
        assert client.post("/embed", json=body).status_code == 200


def test_descriptions_are_for_readers_of_the_interface(client: httpx.Client) -> None:
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for operation in operations.values():
            assert operation["description"], path
            assert "FastAPI" not in operation["description"], path


def test_the_documentation_page_is_served(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    for source in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert source.startswith("/"), "the page must work without any other server"
        assert client.get(source).status_code == 200
