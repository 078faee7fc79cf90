"""Ways to embed a batch of texts with the bundled model, from texts to unit vectors, in one process and without HTTP.

`packed` puts all texts into one row without padding; `sorted` pads them in buckets of like length, as many as its own
rule wants; `padded` pads all in one forward, in the order they came; each in float32 and in bfloat16. `encode` is
SentenceTransformer.encode in float32. First the vectors of each are compared with those of `encode`. The ways then take
turns, there and back; within a round all run the same batches, in whole passes, so that the ratio of two is that of
their times. `packed again` is `packed` itself: its ratio is the noise.

usage: python -m benchmarks.vectorizer [--rounds 6] [--seconds 0.4] [--batch-sizes 1 8 32 128]
           [--workloads queries "256 tokens" log-normal] [--texts FILE] [--device cpu] [--threads N] [--profile]
"""

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer.modules import Normalize
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from app.vectorizers.base import Matrix, TextInput
from app.vectorizers.devices import granted_cores
from app.vectorizers.dtypes import DTYPES
from app.vectorizers.forward.packed import PackedForward, PackedModel
from app.vectorizers.forward.padded import PaddedForward, pad
from app.vectorizers.loading import LoadedModel
from app.vectorizers.sources import find_model
from app.vectorizers.tokenizer import TokenIds
from app.vectorizers.warmup import LIMIT_S, TEXT_TOKENS, sweep

Forward = Callable[[Sequence[TokenIds]], Matrix]
Embed = Callable[[Sequence[str]], Matrix]
Rates = Mapping[str, Sequence[float]]
"""Texts a second by way, one number for each round."""

QUERIES = Path("../shared/data/queries.txt")
LENGTHS = {"queries": (13, 0.53, 82), "256 tokens": (256, 0.0, 256), "log-normal": (40, 1.0, 256)}
"""By workload, of texts that are made up: median, sigma and maximum of a log-normal distribution of token counts. Those
of the queries are as in BANKING77."""
LONGEST = 256
"""Tokens: the bundled model reads no more."""
LEAST_TOKENS = 3
"""One word between two special tokens."""
POOL_TEXTS = 2048
PASS_TEXTS = 64
"""Texts of one pass, or one batch where that is more."""
WARM_UP_S = 3.0
"""Kernels are made at the first use of a shape, in milliseconds: where batches are slow, not all need run before."""
LEAST_COSINE = {"float32": 0.99999, "bfloat16": 0.995}
RATIOS = [
    *[(f"packed {dtype}", f"{other} {dtype}") for other in ("padded", "sorted") for dtype in LEAST_COSINE],
    ("packed bfloat16", "packed float32"),
    *[(f"packed {dtype}", "encode float32") for dtype in LEAST_COSINE],
    *[(f"packed {dtype}", f"packed again {dtype}") for dtype in LEAST_COSINE],
]


def make_texts(model: LoadedModel, lengths: Sequence[int]) -> list[str]:
    """Texts of exactly so many tokens each, of words that are one token in the model's vocabulary."""
    rng = random.Random(0)
    words = sorted(word for word in model.model.tokenizer.get_vocab() if word.isascii() and word.isalpha())
    special = model.tokenizer([TextInput(words[0])])[0].n_tokens - 1
    texts = [" ".join(rng.choices(words, k=length - special)) for length in lengths]
    if [text.n_tokens for text in model.tokenizer([TextInput(text) for text in texts])] != list(lengths):
        raise SystemExit("The model's tokenizer splits words of its own vocabulary; no text has a length known before.")
    return texts


def workload(name: str, model: LoadedModel, file: Path | None) -> list[str]:
    """The texts of a workload, in the order they arrive."""
    file = file or (QUERIES if QUERIES.is_file() else None)
    if name == "queries" and file is not None:
        return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    rng, (median, sigma, longest) = random.Random(0), LENGTHS[name]
    drawn = [round(rng.lognormvariate(math.log(median), sigma)) for _ in range(POOL_TEXTS)]
    return make_texts(model, [min(longest, max(LEAST_TOKENS, length)) for length in drawn])


def embed_with(forward: Forward, model: LoadedModel, texts: Sequence[str]) -> Matrix:
    """Tokenization, a forward, normalisation."""
    rows = forward(model.tokenizer([TextInput(text, model.default_prompt) for text in texts]))
    unit: Matrix = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    return unit


def padded_forward(model: LoadedModel, texts: Sequence[TokenIds]) -> Matrix:
    """All texts in one forward, in their order, padded to the longest."""
    ids, mask = pad([text.ids for text in texts], model.tokenizer.pad_id, left=model.tokenizer.pad_left)
    arrays = {"input_ids": ids} if mask is None else {"input_ids": ids, "attention_mask": mask}
    device = model.model.device
    features: Any = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
    for module in model.model:
        features = features if isinstance(module, Normalize) else module(features)
    rows: Matrix = features["sentence_embedding"].float().cpu().numpy()
    return rows


def sorted_forward(model: LoadedModel, max_tokens: int) -> Forward:
    """Buckets of like length; what a forward costs is measured, as the warm-up does."""
    forward = PaddedForward(model.model, model.tokenizer, max_tokens=max_tokens)

    def run(items: int, tokens_each: int) -> None:
        forward([TokenIds([0] * tokens_each)] * items)

    with torch.inference_mode():
        budget = sweep(run, text_tokens=TEXT_TOKENS, max_items=512, time_limit_s=LIMIT_S["quick"])
    forward.fit(max_tokens, budget.base_s / budget.token_s)
    return forward


def load_ways(original: LoadedModel, device: torch.device, most_items: int) -> dict[str, Embed]:
    """All ways by name, each with a model of its own; `original` is the one for `encode`."""
    source, most_tokens = find_model("bundled", None), most_items * LONGEST
    ways: dict[str, Embed] = {}
    for dtype in LEAST_COSINE:
        packed, bucketed, padded = (LoadedModel(source, device, DTYPES[dtype]) for _ in range(3))
        ways[f"packed {dtype}"] = partial(embed_with, PackedForward(PackedModel(packed.model)), packed)
        ways[f"sorted {dtype}"] = partial(embed_with, sorted_forward(bucketed, most_tokens), bucketed)
        ways[f"padded {dtype}"] = partial(embed_with, partial(padded_forward, padded), padded)
        ways[f"packed again {dtype}"] = ways[f"packed {dtype}"]
    own: Any = original.model  # whose `encode` is overloaded beyond what a type checker can read
    ways["encode float32"] = lambda texts: own.encode(
        list(texts), batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False
    )
    return ways


def check_vectors(ways: Mapping[str, Embed], ragged: Sequence[str]) -> None:
    """Print each way's least cosine to `encode`, and end the benchmark where it is too small."""
    batches = [ragged[first : first + 32] for first in range(0, len(ragged), 32)]
    expected = np.concatenate([ways["encode float32"](batch) for batch in batches])
    for name, embed in ways.items():
        rows = np.concatenate([embed(batch) for batch in batches])
        cosine = float(np.nan_to_num((rows * expected).sum(axis=1)).min())
        print(f"least cosine to encode, {len(ragged)} ragged texts, {name}: {cosine:.6f}", flush=True)
        if cosine < LEAST_COSINE[name.split()[-1]]:
            raise SystemExit(f"The vectors of {name} are not right.")


def draw(texts: Sequence[str], batch_size: int, rng: random.Random) -> list[list[str]]:
    """The batches of one pass: texts in the order they arrive, from a random one on."""
    cursor = rng.randrange(len(texts))
    starts = range(cursor, cursor + max(PASS_TEXTS, batch_size), batch_size)
    return [[texts[i % len(texts)] for i in range(start, start + batch_size)] for start in starts]


def texts_per_s(embed: Embed, batches: Sequence[Sequence[str]], seconds: float) -> float:
    """Whole passes back to back for at least so long, after one untimed call."""
    embed(batches[0])
    passes, started = 0, time.perf_counter()
    while (spent := time.perf_counter() - started) < seconds:
        for batch in batches:
            embed(batch)
        passes += 1
    return passes * sum(map(len, batches)) / spent


def alternate(
    ways: Mapping[str, Embed], passes: Sequence[Sequence[Sequence[str]]], seconds: float, progress: "tqdm[Any]"
) -> Rates:
    """One pass for each round; the ways take turns in it, there and back (A B C C B A)."""
    for embed in ways.values():
        end = time.perf_counter() + WARM_UP_S
        for batch in chain.from_iterable(passes):
            if time.perf_counter() < end:
                embed(batch)
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn, batches in enumerate(passes):
        for name in ways if turn % 2 == 0 else reversed(list(ways)):
            rates[name].append(texts_per_s(ways[name], batches, seconds))
            progress.set_postfix_str(f"{name} {rates[name][-1]:.0f} texts/s")
            progress.update()
    return rates


def profiled(embed: Embed, texts: Sequence[str]) -> str:
    """Where the time of 20 calls goes, by torch's operators."""
    embed(texts)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(20):
            embed(texts)
    return str(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=40))


def report(results: Mapping[tuple[str, int], Rates]) -> str:
    """Medians of texts/s; then the median ratio of two ways within a round, with its range."""
    names = list(next(iter(results.values())))
    lines = [f"| texts/s | batch | {' | '.join(names)} |", "| --- " * (len(names) + 2) + "|"]
    for (kind, batch_size), rates in results.items():
        medians = " | ".join(f"{statistics.median(rates[name]):.0f}" for name in names)
        lines.append(f"| {kind} | {batch_size} | {medians} |")
    for (kind, batch_size), rates in results.items():
        lines.append(f"\n{kind}, batch {batch_size}")
        for over, under in RATIOS:
            ratios = [a / b for a, b in zip(rates[over], rates[under], strict=True)]
            median, least, most = statistics.median(ratios), min(ratios), max(ratios)
            lines.append(f"  {over} / {under}: × {median:.2f} ({least:.2f} to {most:.2f})")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.4, help="the least time of one way's turn")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--workloads", nargs="+", choices=LENGTHS, default=list(LENGTHS))
    parser.add_argument("--texts", type=Path, help=f"queries, one a line; {QUERIES} if there, else made-up ones")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=granted_cores(), help="torch's; all granted cores by default")
    parser.add_argument("--profile", action="store_true", help="also show where packed's time goes in bfloat16")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    original = LoadedModel(find_model("bundled", None), device, torch.float32)
    ways = load_ways(original, device, max(args.batch_sizes))
    print(f"{device}, {args.threads} threads, torch {torch.__version__}\n")
    with torch.inference_mode():
        check_vectors(ways, make_texts(original, random.Random(1).choices(range(LEAST_TOKENS, LONGEST + 1), k=200)))
        texts = {kind: workload(kind, original, args.texts) for kind in args.workloads}
        rows = list(product(args.workloads, args.batch_sizes))
        results: dict[tuple[str, int], Rates] = {}
        with tqdm(total=len(rows) * args.rounds * len(ways), leave=False, disable=None) as progress:
            for kind, batch_size in rows:
                rng = random.Random(batch_size)
                passes = [draw(texts[kind], batch_size, rng) for _ in range(args.rounds)]
                progress.set_description(f"{kind}, batch {batch_size}")
                results[kind, batch_size] = alternate(ways, passes, args.seconds, progress)
        print(f"\n{report(results)}", flush=True)
        for batch_size in (32, 1) if args.profile else ():
            table = profiled(ways["packed bfloat16"], workload("queries", original, args.texts)[:batch_size])
            print(f"\npacked bfloat16, queries, batch {batch_size}\n\n{table}")


if __name__ == "__main__":
    main()
