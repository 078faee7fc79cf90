"""Every family that can be packed, and some that cannot, against sentence-transformers, on small random models."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch.utils._python_dispatch import TorchDispatchMode

from app.vectorizers.forward import encoder
from app.vectorizers.forward.families import FIRST_POSITION
from app.vectorizers.sources import find_model
from app.vectorizers.text import TextVectorizer
from tests.small_models import N_POSITIONS, ragged, save_model

LENGTHS = [1, 2, 3, 13, 14, 15, 16, 17, 29, 30, 31, 32, 33, 46, 47, 48, 64, 100, 126, 157, 158, 159, 200]
TEXTS = ragged(LENGTHS)
POOLING = {"qwen3": "lasttoken", "qwen2": "lasttoken", "gte": "cls", "roberta": "cls"}


def load(folder: Path, **options: Any) -> TextVectorizer:
    return TextVectorizer(
        find_model(str(folder), None), name="small", device="cpu", warmup="off", **{"dtype": "float32", **options}
    )


def likeness(vectorizer: TextVectorizer, folder: Path, texts: list[str]) -> float:
    reference = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    expected = np.asarray(reference.encode(texts, show_progress_bar=False, normalize_embeddings=True))
    return float((vectorizer(texts, normalize=True) * expected).sum(axis=1).min())


@pytest.mark.parametrize("family", FIRST_POSITION)
def test_a_packed_family_has_the_vectors_of_sentence_transformers(family: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path, family, POOLING.get(family, "mean"))
    vectorizer = load(folder)
    assert vectorizer.info.details["forward"] == "packed"
    assert vectorizer.info.max_input_tokens == N_POSITIONS
    assert likeness(vectorizer, folder, TEXTS) >= 0.99999

    rows = vectorizer(TEXTS)
    order = random.Random(1).sample(range(len(TEXTS)), len(TEXTS))
    np.testing.assert_allclose(vectorizer([TEXTS[i] for i in order]), rows[order], atol=1e-5)
    alone = np.concatenate([vectorizer([text]) for text in TEXTS])
    np.testing.assert_allclose(alone, rows, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "qwen3"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken"])
def test_every_pooling_and_a_dense_layer_after_it(family: str, pooling: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path, family, pooling, dense=True)
    vectorizer = load(folder)
    assert vectorizer.info.details["forward"] == "packed"
    assert vectorizer.info.dimension == 24
    assert likeness(vectorizer, folder, TEXTS) >= 0.99999


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "qwen3"])
def test_bfloat16_stays_close(family: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path, family, changes={"initializer_range": 0.05})
    vectorizer = load(folder, dtype="bfloat16")
    assert vectorizer.info.details["forward"] == "packed"
    assert likeness(vectorizer, folder, TEXTS) >= 0.998


@pytest.mark.parametrize(
    ("family", "pooling", "changes", "reason"),
    [
        ("mpnet", "mean", {}, "mpnet is not among those known to pack"),
        ("bert", "max", {}, "the pooling max is not among mean, cls, lasttoken"),
        (
            "nomic_bert",
            "mean",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1000.0}},
            "rotary positions depend on the longest text",
        ),
    ],
)
def test_what_cannot_be_packed_is_padded_and_says_why(
    family: str,
    pooling: str,
    changes: dict[str, Any],
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = save_model(tmp_path, family, pooling, changes=changes)
    vectorizer = load(folder)
    assert vectorizer.info.details["forward"] == "padded, sorted by length"
    assert reason in capsys.readouterr().out
    assert likeness(vectorizer, folder, TEXTS) >= 0.99999


def test_a_packed_forward_with_other_vectors_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(FIRST_POSITION, "bert", lambda config: 1)  # off by one
    folder = save_model(tmp_path, "bert")
    vectorizer = load(folder)
    assert vectorizer.info.details["forward"] == "padded, sorted by length"
    assert "packed vectors differ from sentence-transformers' own" in capsys.readouterr().out
    assert likeness(vectorizer, folder, TEXTS) >= 0.99999


def test_a_packed_forward_that_fails_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def changed(*_: object) -> None:
        raise TypeError("forward() got an unexpected keyword argument 'layout'")

    monkeypatch.setattr(encoder.AnyEncoder, "__call__", changed)
    vectorizer = load(save_model(tmp_path, "modernbert"))
    assert vectorizer.info.details["forward"] == "padded, sorted by length"
    assert "unexpected keyword argument" in capsys.readouterr().out


def test_a_bert_with_another_activation_goes_through_transformers(tmp_path: Path) -> None:
    folder = save_model(tmp_path, "bert", changes={"hidden_act": "silu"})
    vectorizer = load(folder)
    assert isinstance(encoder.encoder_of(SentenceTransformer(str(folder))[0].auto_model), encoder.AnyEncoder)
    assert vectorizer.info.details["forward"] == "packed"
    assert likeness(vectorizer, folder, TEXTS) >= 0.99999


class Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what reads a value of a tensor on the host: on a device, each would wait for all that was launched."""

    READS = (
        torch.ops.aten._local_scalar_dense.default,
        torch.ops.aten.is_nonzero.default,
        torch.ops.aten.nonzero.default,
        torch.ops.aten.equal.default,
    )

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in self.READS
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", FIRST_POSITION)
def test_a_packed_forward_reads_no_value_before_its_end(family: str, tmp_path: Path) -> None:
    vectorizer = load(save_model(tmp_path, family))
    texts = vectorizer._encode(TEXTS)
    vectorizer(texts)
    with torch.inference_mode(), Reads() as reads:
        vectorizer._forward(texts)
    assert reads.count == 0
    with Reads() as reads:
        torch.ones(1).item()
    assert reads.count == 1
