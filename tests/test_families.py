"""Every family that can be packed, and some that cannot, against sentence-transformers, on small random models."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense
from torch.utils._python_dispatch import TorchDispatchMode

from app.errors import StartFailed
from app.vectorizers import text
from app.vectorizers.forward import encoder, families
from app.vectorizers.forward.families import FAMILIES
from app.vectorizers.forward.pooling import POOLS
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


@pytest.mark.parametrize("family", FAMILIES)
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
    monkeypatch.setattr(families, "COUNT_AFTER_PADDING", {"bert"})  # off by one
    folder = save_model(tmp_path, "bert")
    vectorizer = load(folder)
    assert vectorizer.info.details["forward"] == "padded, sorted by length"
    assert "packed vectors differ from sentence-transformers' own" in capsys.readouterr().out
    assert likeness(vectorizer, folder, TEXTS) >= 0.99999


DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1000.0}


def test_a_model_whose_vectors_depend_on_their_company_is_refused(tmp_path: Path) -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1000.0,
        "short_factor": [1.0] * 6,
        "long_factor": [2.0] * 6,
        "original_max_position_embeddings": 32,
    }
    folder = save_model(tmp_path, "llama", changes={"rope_parameters": rope})
    with pytest.raises(StartFailed, match="when one exceeds 32 tokens"):
        load(folder)


def test_dynamic_positions_that_are_never_reached_do_no_harm(tmp_path: Path) -> None:
    folder = save_model(tmp_path, "nomic_bert", changes={"rope_parameters": DYNAMIC})
    vectorizer = load(folder)
    assert vectorizer.info.details["forward"] == "packed"
    assert likeness(vectorizer, folder, TEXTS) >= 0.99999


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "camembert", "qwen3"])
def test_padding_tokens_inside_a_text_are_placed_as_the_family_places_them(family: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path, family)
    vectorizer = load(folder)
    assert vectorizer.info.details["forward"] == "packed"
    assert likeness(vectorizer, folder, ["abc<pad>def", "<pad>abc", "abc", "<pad><pad>", "x<pad>"]) >= 0.99999


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_no_text_reaches_beyond_the_table_of_positions(family: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path, family, changes={"max_position_embeddings": 100})
    vectorizer = load(folder)
    assert vectorizer.info.max_input_tokens == (100 if family == "bert" else 99)
    assert vectorizer(ragged([200])).shape == (1, 48)


def test_a_normalisation_in_the_middle_stays_and_lengths_are_compared_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_model(tmp_path, "bert")
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    model.append(Dense(48, 24, bias=False, activation_function=torch.nn.Identity()))
    model.save(str(tmp_path / "reduced"))
    vectorizer = load(tmp_path / "reduced")
    assert vectorizer.info.details["forward"] == "packed"
    expected = np.asarray(model.encode(TEXTS, show_progress_bar=False))
    np.testing.assert_allclose(vectorizer(TEXTS, normalize=False), expected, atol=1e-5)

    pool = POOLS["mean"]
    monkeypatch.setitem(POOLS, "mean", lambda hidden, starts: 2 * pool(hidden, starts))
    monkeypatch.setattr("app.vectorizers.forward.packed.Normalize", torch.nn.Identity)
    assert load(save_model(tmp_path / "other", "bert")).info.details["forward"] == "packed", "unit length hides it"
    plain = SentenceTransformer(modules=list(model)[:2], device="cpu")
    plain.save(str(tmp_path / "plain"))
    assert load(tmp_path / "plain").info.details["forward"] == "padded, sorted by length"
    assert "lengths differ by 100" in capsys.readouterr().out


def test_a_model_too_large_for_float16_is_loaded_wider_or_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_model(tmp_path, "bert")
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    transformer: Any = model[0].auto_model
    transformer.encoder.layer[0].intermediate.dense.weight.data.mul_(30_000)
    model.save(str(tmp_path / "large"))
    with pytest.raises(StartFailed, match="not finite in float16; try --dtype bfloat16"):
        load(tmp_path / "large", dtype="float16")
    monkeypatch.setattr(text, "choose_dtype", lambda *_: torch.float16)  # as on a card
    assert load(tmp_path / "large", dtype="auto").info.dtype == "bfloat16"
    assert "the model overflows" in capsys.readouterr().out


def test_a_packed_forward_that_fails_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def changed(*_: object) -> None:
        raise TypeError("forward() got an unexpected keyword argument 'layout'")

    monkeypatch.setattr(encoder.AnyEncoder, "__call__", changed)
    vectorizer = load(save_model(tmp_path, "modernbert"))
    assert vectorizer.info.details["forward"] == "padded, sorted by length"
    assert "unexpected keyword argument" in capsys.readouterr().out


@pytest.mark.parametrize("family", encoder.PARTS)
def test_what_is_built_like_bert_is_run_layer_by_layer(family: str, tmp_path: Path) -> None:
    model = SentenceTransformer(str(save_model(tmp_path, family)), device="cpu", local_files_only=True)
    assert isinstance(encoder.encoder_of(model[0].auto_model), encoder.BertEncoder)


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


@pytest.mark.parametrize("family", FAMILIES)
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
