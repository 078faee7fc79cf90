"""The case of the founding experiment that embeds texts: a bare function against the callable vectorizer."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer

from app.vectorizers.base import Matrix, TextInput
from app.vectorizers.sources import find_model
from app.vectorizers.text import TextVectorizer
from app.vectorizers.warmup import Thoroughness
from benchmarks.gpu import WORDS
from benchmarks.loop_vs_batch_cases import Case, require
from benchmarks.vectorizer import LENGTHS, LONGEST

CHUNK = 8


def embed_texts(texts: Sequence[str], tokenizer: Any, model: Any, device: torch.device, chunk: int) -> Matrix:
    """The bare function, as it is often written: all state comes in with each call, chunks are padded to their longest
    text, and each chunk's rows are fetched before the next begins."""
    rows = []
    for first in range(0, len(texts), chunk):
        inputs = tokenizer(
            list(texts[first : first + chunk]), padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
        ).to(device)
        with torch.no_grad():
            hidden = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1)
        mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
        rows.append(nn.functional.normalize(mean, dim=1).cpu().numpy())
    matrix: Matrix = np.concatenate(rows)
    return matrix


def make_texts(count: int) -> list[str]:
    """Made-up texts, about as long as customers' queries: words by a log-normal law."""
    rng = random.Random(0)
    median, sigma, longest = LENGTHS["queries"]
    lengths = [round(rng.lognormvariate(math.log(median - 2), sigma)) for _ in range(count)]
    return [" ".join(rng.choices(WORDS, k=min(max(length, 1), longest))) for length in lengths]


def pipeline_case(device: torch.device, n_texts: int, warmup: Thoroughness = "quick") -> Case:
    """Texts to unit vectors with the bundled model in float32: the bare function twice, and the callable vectorizer."""
    source, texts = find_model("bundled", None), make_texts(n_texts)
    tokenizer = AutoTokenizer.from_pretrained(source.location)
    model = AutoModel.from_pretrained(source.location).to(device).eval()
    vectorizer = TextVectorizer(source, name=source.name, device=str(device), dtype="float32", warmup=warmup)
    item, chunks, owner = "bare function, item by item", f"bare function, chunks of {CHUNK}", "vectorizer"
    noise = f"{item}, again"
    ways: dict[str, Callable[[], Matrix]] = {
        item: lambda: embed_texts(texts, tokenizer, model, device, 1),
        chunks: lambda: embed_texts(texts, tokenizer, model, device, CHUNK),
        owner: lambda: vectorizer(texts),
        noise: lambda: embed_texts(texts, tokenizer, model, device, 1),
    }
    expected = ways[item]()
    off = max(float(np.abs(ways[way]() - expected).max()) for way in (chunks, owner))
    require(off)
    lengths = sorted(text.n_tokens for text in vectorizer.tokenize([TextInput(text) for text in texts]))
    return Case(
        title=f"(b) text pipeline, bundled model, {n_texts} texts",
        unit="text",
        units=n_texts,
        ways=ways,
        compared=[(chunks, item), (owner, item), (owner, chunks), (noise, item)],
        fact=f"The rows of the three differ by {off:.0e} at most. The texts are made up, {lengths[n_texts // 2]} "
        f"tokens in the median and {lengths[-1]} at most; the vectorizer runs at most "
        f"{vectorizer.info.max_batch_tokens:,} tokens in a batch, as it measured at warm-up.",
    )
