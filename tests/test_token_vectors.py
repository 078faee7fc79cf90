"""Each token's vector against sentence-transformers' own, on the bundled model and on small random ones."""

import random
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from app.errors import BackendFailed, NotFinite, OutOfMemory
from app.vectorizers.base import Matrix, TextInput
from app.vectorizers.forward import cuda
from app.vectorizers.forward.packed import PackedForward, PackedModel
from app.vectorizers.forward.staging import Slot
from app.vectorizers.sources import find_model
from app.vectorizers.text import TextVectorizer
from app.vectorizers.tokenizer import TokenIds
from tests.small_models import ragged, save_model

LENGTHS = [1, 2, 14, 15, 16, 31, 33, 64, 100, 158, 200]
TEXTS = ragged(LENGTHS)


def load(folder: str, **options: Any) -> TextVectorizer:
    return TextVectorizer(
        find_model(folder, None), name="m", device="cpu", warmup="off", **{"dtype": "float32", **options}
    )


def token_vectors(vectorizer: TextVectorizer, texts: list[str]) -> list[Matrix]:
    return vectorizer.token_vectors(vectorizer.tokenize([TextInput(text) for text in texts]))


def reference(folder: str, texts: list[str]) -> list[Matrix]:
    model = SentenceTransformer(folder, device="cpu", local_files_only=True)
    rows: Any = [model.encode(text, output_value="token_embeddings", show_progress_bar=False) for text in texts]
    return [one.float().cpu().numpy() for one in rows]


def assert_alike(found: list[Matrix], expected: list[Matrix], tolerance: float) -> None:
    assert [one.shape for one in found] == [one.shape for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, atol=tolerance)


def test_the_bundled_model_has_the_token_vectors_of_sentence_transformers() -> None:
    source = find_model("bundled", None)
    vectorizer = load("bundled", max_batch_tokens=100)
    texts = ["a", "Where is my card?", "Ünïcödé 日本語", "one two three " * 12, "eight nine ten " * 120]
    found = token_vectors(vectorizer, texts)
    assert_alike(found, reference(source.location, texts), 1e-5)
    lengths = [one.n_tokens for one in vectorizer.tokenize([TextInput(text) for text in texts])]
    assert [len(one) for one in found] == lengths


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert", "qwen3", "mpnet"])
def test_packed_and_padded_families_in_any_order_and_company(family: str, tmp_path: Path) -> None:
    folder = str(save_model(tmp_path, family))
    vectorizer = load(folder, max_batch_tokens=250)
    assert vectorizer.info.details["forward"] == ("padded, sorted by length" if family == "mpnet" else "packed")
    found = token_vectors(vectorizer, TEXTS)
    assert_alike(found, reference(folder, TEXTS), 1e-4)
    order = random.Random(1).sample(range(len(TEXTS)), len(TEXTS))
    assert_alike(token_vectors(vectorizer, [TEXTS[i] for i in order]), [found[i] for i in order], 1e-5)


def test_padding_on_the_left_is_left_out_too(tmp_path: Path) -> None:
    folder = str(save_model(tmp_path, "qwen3", "max"))  # a pooling that is not packed
    vectorizer = load(folder)
    assert vectorizer.info.details["forward"] == "padded, sorted by length"
    assert_alike(token_vectors(vectorizer, TEXTS), reference(folder, TEXTS), 1e-4)


def test_no_texts_give_no_rows(tmp_path: Path) -> None:
    assert load(str(save_model(tmp_path, "bert"))).token_vectors([]) == []


def test_token_vectors_run_in_parts_and_fail_as_rows_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectorizer = load(str(save_model(tmp_path, "bert")), max_batch_tokens=40)
    encodings = [TokenIds([1, 4, 2]), *[TokenIds([1, *range(4, 32), 2])] * 3]
    parts: list[int] = []

    class Watched:
        def __init__(self, outcome: Any) -> None:
            self.outcome = outcome

        def token_vectors(self, texts: list[TokenIds]) -> list[Matrix]:
            parts.append(sum(one.n_tokens for one in texts))
            if isinstance(self.outcome, Exception):
                raise self.outcome
            return [np.full((one.n_tokens, 2), self.outcome, np.float32) for one in texts]

    monkeypatch.setattr(vectorizer, "_forward", Watched(1.0))
    assert [len(one) for one in vectorizer.token_vectors(encodings)] == [3, 30, 30, 30]
    assert parts == [33, 30, 30]
    for outcome, error in (
        (torch.OutOfMemoryError("no room"), OutOfMemory),
        (float("nan"), NotFinite),
        (RuntimeError("some other fault"), RuntimeError),
        (BackendFailed("no vector for each token"), BackendFailed),
    ):
        monkeypatch.setattr(vectorizer, "_forward", Watched(outcome))
        with pytest.raises(error):
            vectorizer.token_vectors(encodings)


def test_info_names_the_pooling_and_counts_the_parameters(tmp_path: Path) -> None:
    folder = str(save_model(tmp_path, "qwen3", "lasttoken"))
    info = load(folder).info
    assert (info.kind, info.labels) == ("embedding", ())
    assert info.details["pooling"] == "last_token"
    model = SentenceTransformer(folder, device="cpu", local_files_only=True)
    assert info.details["parameters"] == sum(one.numel() for one in model.parameters())
    assert load(str(save_model(tmp_path / "other", "bert", "mean"))).info.details["pooling"] == "mean"


class Nothing:
    """A stream or an event of a device that has done everything at once."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def record(self, _: object) -> None:
        pass

    def synchronize(self) -> None:
        pass


def test_the_forward_for_cuda_gives_the_same_rows_and_token_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own code, with a CPU in place of the card."""
    for name in ("Stream", "Event"):
        monkeypatch.setattr(torch.cuda, name, Nothing)
    for name in ("stream", "device"):
        monkeypatch.setattr(torch.cuda, name, nullcontext)
    monkeypatch.setattr(cuda, "Slot", partial(Slot, pinned=False))
    folder = str(save_model(tmp_path, "bert"))
    packed = PackedModel(SentenceTransformer(folder, device="cpu", local_files_only=True))
    on_card, on_cpu = cuda.CudaForward(packed, torch.device("cpu"), ragged=False), PackedForward(packed)
    texts = [TokenIds([1, *range(4, 4 + length), 2]) for length in (1, 30, 7, 14)]
    with torch.inference_mode():
        np.testing.assert_allclose(on_card(texts), on_cpu(texts), atol=1e-5)
        for _ in range(2 * cuda.SLOTS):  # each slot is given back
            assert_alike(on_card.token_vectors(texts), on_cpu.token_vectors(texts), 1e-5)

        def full(*_: object) -> None:
            raise torch.OutOfMemoryError("no room")

        for _ in range(2 * cuda.SLOTS):
            monkeypatch.setattr(packed, "states", full)
            with pytest.raises(torch.OutOfMemoryError):
                on_card.token_vectors(texts)
