"""The bundled model in a real server process: right vectors, full batches, nothing lost."""

import asyncio
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from app.vectorizers.sources import find_model
from tests.conftest import Serve
from tests.server import Answered, RunningServer

WORDS = ("card", "account", "where", "money", "please", "help", "arrived", "exchange", "rate", "top-up", "PIN", "why?")


@pytest.fixture(scope="module")
def reference() -> SentenceTransformer:
    return SentenceTransformer(find_model("bundled", None).location, device="cpu", local_files_only=True)


def encode(reference: SentenceTransformer, texts: list[str]) -> np.ndarray[Any, Any]:
    return np.asarray(reference.encode(texts, show_progress_bar=False))


def row_of(answer: Answered) -> list[float]:
    assert answer.status_code == 200, answer.content
    (row,) = answer.json()
    return list(row)


def test_vectors_are_those_of_sentence_transformers(real_server: RunningServer, reference: SentenceTransformer) -> None:
    texts = ["Where is my card?", "a", "Ünïcödé 日本語", "long " * 400, " "]
    with real_server.client() as client:
        found = np.array(client.post("/embed", json={"inputs": texts}).json())
    assert (found * encode(reference, texts)).sum(axis=1).min() >= 0.99999
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


def test_concurrent_clients_fill_batches_and_each_gets_its_own_row(
    real_server: RunningServer, reference: SentenceTransformer
) -> None:
    rng = random.Random(7)
    texts = [f"{i} " + " ".join(rng.choices(WORDS, k=int(rng.lognormvariate(2, 0.7)) + 1)) for i in range(2000)]
    before = real_server.metric("convoy_batch_items_sum"), real_server.metric("convoy_batch_items_count")

    async def main() -> list[Answered]:
        async with real_server.crowd() as crowd:
            return await asyncio.gather(*[crowd.embed(text) for text in texts])

    found = np.array([row_of(answer) for answer in asyncio.run(main())])
    items = real_server.metric("convoy_batch_items_sum") - before[0]
    batches = real_server.metric("convoy_batch_items_count") - before[1]
    assert items == 2000
    assert items / batches > 4, "requests do not share batches"
    assert (found * encode(reference, texts)).sum(axis=1).min() >= 0.9999


def test_a_text_longer_than_the_model_reads_is_cut_and_said_or_refused(real_server: RunningServer) -> None:
    text = "word " * 600
    with real_server.client() as client:
        answer = client.post("/embed", json={"inputs": [text, "short"]})
        assert answer.headers["x-truncated-inputs"] == "1"
        refused = client.post("/embed", json={"inputs": [text, "short"], "truncate": False})
    assert refused.status_code == 422
    assert refused.json()["error"] == "inputs[0] has 602 tokens; the limit is 256 with truncation off."


def test_correlation_with_human_judgement_is_the_published_one(real_server: RunningServer, data: Path) -> None:
    pairs = [line.split("\t") for line in (data / "sts16.tsv").read_text().splitlines()]

    def embed(texts: list[str]) -> np.ndarray[Any, Any]:
        rows = []
        with real_server.client() as client:
            for start in range(0, len(texts), 100):
                body = {"inputs": texts[start : start + 100]}
                answer = client.post("/embed", json=body, headers={"accept": "application/octet-stream"})
                assert answer.status_code == 200, answer.text
                rows.append(np.frombuffer(answer.content, "<f4").reshape(-1, 384))
        return np.concatenate(rows)

    cosines = (embed([pair[1] for pair in pairs]) * embed([pair[2] for pair in pairs])).sum(axis=1)
    spearman = 100 * spearmanr(cosines, [float(pair[0]) for pair in pairs]).statistic
    assert spearman == pytest.approx(78.99, abs=0.15)


def test_sigterm_with_200_in_flight_loses_none(serve: Serve) -> None:
    server = serve("--warmup", "quick")

    async def main() -> list[Answered]:
        async with server.crowd() as crowd:
            long = " ".join(WORDS * 4)
            calls = [asyncio.create_task(crowd.embed(f"{i} {long}")) for i in range(200)]
            await server.until(server.accepted, 200)
            assert server.metric('convoy_queue_items{lane="interactive"}') > 0
            server.process.send_signal(signal.SIGTERM)
            return await asyncio.gather(*calls)

    answers = asyncio.run(main())
    assert [answer.status_code for answer in answers] == [200] * 200
    assert server.process.wait(30) == 0


def test_three_workers_on_one_cpu_give_the_same_vectors(serve: Serve, reference: SentenceTransformer) -> None:
    server = serve("--dtype", "float32", "--workers", "3", "--max-batch-tokens", "256", "--warmup", "quick")
    texts = [f"{i} {word}" for i in range(20) for word in WORDS]
    found = np.array([row_of(answer) for answer in server.embed_all(*texts)])
    assert (found * encode(reference, texts)).sum(axis=1).min() >= 0.99999


def test_the_prompt_that_was_applied_is_told(real_server: RunningServer) -> None:
    with real_server.client() as client:
        for body in ({"prompt_name": "query"}, {"input_type": "query"}):
            assert client.post("/embed", json={"inputs": "a", **body}).headers["x-prompt-name"] == "query"
        assert client.post("/v1/embeddings", json={"input": "a", "input_type": "document"}).headers[
            "x-prompt-name"
        ] == ("document")
        assert "x-prompt-name" not in client.post("/embed", json={"inputs": "a"}).headers
