"""text-embeddings-inference's protocol besides `/embed`, field by field, on real servers with simulated devices."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import httpx
import numpy as np
import pytest

from tests.server import RunningServer, running_server


def with_labels(n: int) -> AbstractContextManager[RunningServer]:
    """A server whose simulated model has a head of so many labels."""
    return running_server("--model", f"fake://?labels={n}&base_ms=0&item_ms=0&max_tokens=16", "--max-inputs", "20")


@pytest.fixture(scope="module")
def reranker_server() -> Iterator[RunningServer]:
    with with_labels(1) as server:
        yield server


@pytest.fixture(scope="module")
def classifier_server() -> Iterator[RunningServer]:
    with with_labels(3) as server:
        yield server


@pytest.fixture
def reranker(reranker_server: RunningServer) -> Iterator[httpx.Client]:
    with reranker_server.client() as client:
        yield client


@pytest.fixture
def classifier(classifier_server: RunningServer) -> Iterator[httpx.Client]:
    with classifier_server.client() as client:
        yield client


def post(client: httpx.Client, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


# --- what every answer says -----------------------------------------------------------------------------------------

COMPUTE = ("x-compute-type", "x-compute-time", "x-compute-characters", "x-compute-tokens")


def test_what_an_answer_cost_is_told_in_teis_headers(client: httpx.Client) -> None:
    answer = client.post("/embed", json={"inputs": ["a b", "cd"]})
    headers = {name: answer.headers[name] for name in COMPUTE}
    assert headers["x-compute-type"] == "simulated"
    assert (headers["x-compute-characters"], headers["x-compute-tokens"]) == ("5", "7")
    total = float(re.findall(r"total;dur=([\d.]+)", answer.headers["server-timing"])[0])
    assert int(headers["x-compute-time"]) == int(total)


def test_info_has_teis_fields_beside_ours(client: httpx.Client) -> None:
    info = client.get("/info").json()
    assert info["model_type"] == {"embedding": {"pooling": "mean"}}
    assert (info["model_id"], info["model_dtype"], info["max_input_length"]) == ("fake", "float32", 16)
    assert info["max_client_batch_size"] == info["settings"]["max_inputs"]
    assert info["max_batch_tokens"] == info["scheduler"]["max_batch_tokens"]
    assert info["max_batch_requests"] == info["settings"]["max_batch_items"]
    assert info["auto_truncate"] is True
    for field in ("model_sha", "max_concurrent_requests", "tokenization_workers", "version", "sha", "docker_label"):
        assert field in info


def test_info_names_the_labels_of_a_head(reranker: httpx.Client, classifier: httpx.Client) -> None:
    head = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    assert reranker.get("/info").json()["model_type"] == {"reranker": head}
    assert classifier.get("/info").json()["model_type"]["classifier"]["id2label"]["2"] == "LABEL_2"


# --- embedding models -----------------------------------------------------------------------------------------------


def test_the_root_embeds(client: httpx.Client) -> None:
    assert post(client, "/", inputs="a b", normalize=False) == post(client, "/embed", inputs="a b", normalize=False)


def test_embed_all_gives_a_row_for_each_token(client: httpx.Client) -> None:
    one, other = post(client, "/embed_all", inputs=["a b c", "d"])
    assert [len(one), len(other)] == [5, 3], "words, and two special tokens"
    assert {len(row) for row in one} == {8}
    assert post(client, "/embed_all", inputs="a b c") == [one], "no row depends on the company"


def test_embed_all_is_bounded_in_tokens(client: httpx.Client) -> None:
    answer = client.post("/embed_all", json={"inputs": ["word " * 300] * 2000})
    assert answer.status_code == 422
    assert "limit is 16384 in one request" in answer.json()["error"]


def test_embed_all_and_embed_share_a_batch_without_harm(client: httpx.Client) -> None:
    vectors = post(client, "/embed", inputs="a b")
    matrices = post(client, "/embed_all", inputs="a b")
    paths = ["/embed", "/embed_all"] * 50
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda path: post(client, path, inputs="a b"), paths))
    assert all(
        answer == (vectors if path == "/embed" else matrices) for path, answer in zip(paths, answers, strict=True)
    )


def test_similarity_is_the_cosine_of_the_source_and_each_sentence(client: httpx.Client) -> None:
    inputs = {"source_sentence": "a b", "sentences": ["a b", "c d", "e"]}
    found = post(client, "/similarity", inputs=inputs, parameters=None)
    rows = np.array(post(client, "/embed", inputs=["a b", "a b", "c d", "e"]))
    np.testing.assert_allclose(found, rows[1:] @ rows[0], atol=1e-6)
    assert found[0] == pytest.approx(1)


def test_tokenize_gives_teis_fields(client: httpx.Client) -> None:
    (tokens,) = post(client, "/tokenize", inputs="ab cd")
    assert [token.keys() for token in tokens] == [{"id", "text", "special", "start", "stop"}] * len(tokens)
    ordinary = [token for token in tokens if not token["special"]]
    assert ["ab cd"[token["start"] : token["stop"]] for token in ordinary] == ["ab", "cd"]
    assert [token["text"] for token in ordinary] == ["ab", "cd"]
    assert all(token["start"] is None for token in tokens if token["special"])
    assert len(tokens) == 4
    assert len(post(client, "/tokenize", inputs=["ab cd"], add_special_tokens=False)[0]) == 2


def test_decode_takes_one_list_or_several(client: httpx.Client) -> None:
    one = post(client, "/decode", ids=[5, 6])
    assert len(one) == 1
    assert post(client, "/decode", ids=[[5, 6], [7]])[0] == one[0]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/embed_all", {"inputs": ""}, "inputs is empty"),
        ("/embed_all", {"inputs": ["a", ""]}, "inputs[1] is empty"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, "inputs.sentences"),
        ("/similarity", {"inputs": "a"}, "inputs"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b", ""]}}, "inputs.sentences[1]"),
        ("/tokenize", {"inputs": 3}, "inputs"),
        ("/tokenize", {"inputs": ["a", 3]}, "inputs[1]"),
        ("/tokenize", {"inputs": "a", "prompt_name": "nope"}, "prompt_name is 'nope'. Available prompts: []"),
        ("/decode", {"ids": [-1]}, "vocabulary, 0 to"),
        ("/decode", {"ids": []}, "ids holds an empty list"),
        ("/decode", {"ids": ["a"]}, "ids[0]"),
    ],
)
def test_bad_input_is_named(client: httpx.Client, path: str, body: Any, says: str) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 422
    assert answer.json().keys() == {"error", "error_type"}
    assert says in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/predict", {"inputs": "a"}),
        ("/rerank", {"query": "a", "texts": ["b"]}),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}),
    ],
)
def test_a_model_without_a_head_says_so(client: httpx.Client, path: str, body: Any) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 424
    assert "fake has no classification head" in answer.text


# --- models with a head ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": "a"}),
        ("/embed_all", {"inputs": "a"}),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}),
        ("/v1/embeddings", {"input": "a"}),
        ("/api/embed", {"input": "a"}),
    ],
)
def test_a_model_with_a_head_does_not_embed(reranker: httpx.Client, path: str, body: Any) -> None:
    answer = reranker.post(path, json=body)
    assert answer.status_code == 424
    assert "does not embed" in answer.text


def test_rerank_orders_texts_the_best_first(reranker: httpx.Client) -> None:
    texts = [f"text {i}" for i in range(10)]
    ranks = post(reranker, "/rerank", query="q", texts=texts)
    assert [rank.keys() for rank in ranks] == [{"index", "score"}] * 10
    assert sorted(rank["index"] for rank in ranks) == list(range(10))
    scores = [rank["score"] for rank in ranks]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score < 1 for score in scores)
    raw = post(reranker, "/rerank", query="q", texts=texts, raw_scores=True, return_text=True)
    assert [rank["index"] for rank in raw] == [rank["index"] for rank in ranks]
    assert all(rank["text"] == texts[rank["index"]] for rank in raw)
    np.testing.assert_allclose([1 / (1 + np.exp(-rank["score"])) for rank in raw], scores, rtol=1e-5)
    assert post(reranker, "/", query="q", texts=texts) == ranks, "the root does what the model does"


def test_a_score_depends_on_both_texts_and_on_no_others(reranker: httpx.Client) -> None:
    def score(query: str, text: str, *others: str) -> float:
        ranks = post(reranker, "/rerank", query=query, texts=[text, *others])
        return float(next(rank["score"] for rank in ranks if rank["index"] == 0))

    assert score("q", "a") == score("q", "a", "b", "c")
    assert len({score("q", "a"), score("r", "a"), score("q", "b"), score("a", "q")}) == 4


def test_predict_gives_labels_the_likeliest_first(classifier: httpx.Client) -> None:
    predictions = post(classifier, "/predict", inputs="a")
    assert [one.keys() for one in predictions] == [{"score", "label"}] * 3
    assert {one["label"] for one in predictions} == {"LABEL_0", "LABEL_1", "LABEL_2"}
    scores = [one["score"] for one in predictions]
    assert scores == sorted(scores, reverse=True)
    assert sum(scores) == pytest.approx(1, abs=1e-5)
    assert post(classifier, "/predict", inputs=[["a"], ["a", "b"]])[0] == predictions
    pair = post(classifier, "/predict", inputs=["a", "b"], raw_scores=True)
    logits = [one["score"] for one in pair]
    shares = [one["score"] for one in post(classifier, "/predict", inputs=["a", "b"])]
    np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(), shares, rtol=1e-4)
    assert post(classifier, "/", inputs="a") == predictions


def test_a_classifier_with_several_labels_does_not_rank(classifier: httpx.Client) -> None:
    answer = classifier.post("/rerank", json={"query": "q", "texts": ["a"]})
    assert answer.status_code == 424
    assert "3 labels" in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/rerank", {"query": "", "texts": ["a"]}, "query"),
        ("/rerank", {"query": "q", "texts": []}, "texts"),
        ("/rerank", {"query": "q", "texts": ["a", ""]}, "texts[1] is empty"),
        ("/rerank", {"query": "q", "texts": ["a"] * 21}, "the limit is 20"),
        ("/rerank", {"query": "q", "texts": ["w " * 30], "truncate": False}, "texts[0] has 34 tokens; the limit is 16"),
        ("/v1/rerank", {"query": "q", "documents": ["a"], "top_n": 0}, "top_n"),
        ("/v1/rerank", {"query": "q", "documents": ["a"], "top_n": 1.5}, "top_n"),
        ("/predict", {"inputs": []}, "inputs"),
        ("/predict", {"inputs": [[]]}, "inputs[0]"),
        ("/predict", {"inputs": ["a"]}, "inputs"),
        ("/predict", {"inputs": ["a", ""]}, "inputs is empty"),
    ],
)
def test_a_bad_request_to_rank_is_named(reranker: httpx.Client, path: str, body: Any, says: str) -> None:
    answer = reranker.post(path, json=body)
    assert answer.status_code == 422
    assert says in answer.text


# --- Cohere's and Jina's form ---------------------------------------------------------------------------------------


def test_v1_rerank_answers_as_cohere_and_jina_do(reranker: httpx.Client) -> None:
    documents = ["a", {"text": "b"}, "c"]
    body = post(reranker, "/v1/rerank", model="rerank-v3.5", query="q", documents=documents, top_n=2)
    assert body.keys() == {"id", "model", "results", "usage", "meta"}
    ranks = post(reranker, "/rerank", query="q", texts=["a", "b", "c"])
    expected = [{"index": rank["index"], "relevance_score": rank["score"]} for rank in ranks[:2]]
    assert body["results"] == expected
    assert post(reranker, "/v1/rerank", query="q", documents=documents, top_n=2.0)["results"] == expected
    assert body["usage"]["total_tokens"] > 0
    repeated = post(reranker, "/v1/rerank", query="q", documents=documents, return_documents=True)["results"]
    assert all(one["document"] == {"text": ["a", "b", "c"][one["index"]]} for one in repeated)
    assert reranker.post("/v1/rerank", json={"query": "q"}).json().keys() == {"message"}


def test_tokenize_is_bounded_in_characters(client: httpx.Client) -> None:
    answer = client.post("/tokenize", json={"inputs": ["! " * 50_000, "! " * 50_000]})
    assert answer.status_code == 422
    assert "hold 200000 characters; the limit is 131072" in answer.json()["error"]
