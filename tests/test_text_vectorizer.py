"""TextVectorizer against sentence-transformers' own encode, with the real model."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from app.errors import OutOfMemory, StartFailed, TokenizerFailed
from app.vectorizers import sources
from app.vectorizers.base import TextInput
from app.vectorizers.forward.packed import PackedForward
from app.vectorizers.sources import ModelSource, find_model
from app.vectorizers.text import TextVectorizer
from app.vectorizers.tokenizer import TextTokenizer, TokenIds

WORDS = ("card", "account", "where", "money", "please", "help", "antidisestablishmentarianism", "1,234.56", "why?")


def ragged_texts(count: int = 40, longest: int = 300) -> list[str]:
    rng = random.Random(1)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, longest))) for _ in range(count)]
    return [*texts, "a", " ", "Ünïcödé 日本語 🚀", "\n\n", "x" * 5000]


@pytest.fixture(scope="module")
def vectorizer() -> TextVectorizer:
    return TextVectorizer(find_model("bundled", None), name="m", dtype="float32", max_batch_tokens=600, warmup="quick")


@pytest.fixture(scope="module")
def reference() -> SentenceTransformer:
    return SentenceTransformer(find_model("bundled", None).location, device="cpu", local_files_only=True)


def encode(reference: SentenceTransformer, texts: list[str], **options: Any) -> np.ndarray[Any, Any]:
    return np.asarray(reference.encode(texts, show_progress_bar=False, **options))


def test_vectors_equal_sentence_transformers_in_any_order_and_company(
    vectorizer: TextVectorizer, reference: SentenceTransformer
) -> None:
    texts = ragged_texts()
    rows = vectorizer(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (len(texts), 384)
    cosines = (rows * encode(reference, texts)).sum(axis=1)
    assert cosines.min() >= 0.99999
    order = random.Random(2).sample(range(len(texts)), len(texts))
    shuffled = vectorizer([texts[i] for i in order])
    np.testing.assert_allclose(shuffled, rows[order], atol=2e-6)
    alone = np.concatenate([vectorizer([text]) for text in texts[:10]])
    np.testing.assert_allclose(alone, rows[:10], atol=2e-6)


def test_no_texts_give_no_rows(vectorizer: TextVectorizer) -> None:
    assert vectorizer([]).shape == (0, 384)


def test_raw_rows_are_those_before_the_models_own_normalisation(vectorizer: TextVectorizer) -> None:
    raw = vectorizer(["Where is my card?"], normalize=False)
    assert not np.isclose(np.linalg.norm(raw), 1)
    np.testing.assert_allclose(raw / np.linalg.norm(raw), vectorizer(["Where is my card?"]), atol=1e-6)


def test_no_forward_exceeds_the_budget_by_more_than_one_text_and_keeps_no_gradient(
    vectorizer: TextVectorizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, parts, modes = vectorizer._forward, [], []

    def watched(texts: list[TokenIds]) -> Any:
        parts.append([text.n_tokens for text in texts])
        modes.append(torch.is_inference_mode_enabled())
        return forward(texts)

    monkeypatch.setattr(vectorizer, "_forward", watched)
    rows = vectorizer(ragged_texts())
    assert rows.shape == (45, 384)
    assert len(parts) > 1
    assert sum(map(len, parts)) == 45
    assert all(len(part) == 1 or sum(part) <= 600 for part in parts)
    assert all(modes)


def test_bfloat16_is_close_and_a_text_has_the_same_vector_in_any_company(reference: SentenceTransformer) -> None:
    vectorizer = TextVectorizer(find_model("bundled", None), name="m", dtype="bfloat16", warmup="off")
    texts = ragged_texts()
    rows = vectorizer(texts)
    assert (rows * encode(reference, texts)).sum(axis=1).min() >= 0.9995
    alone = np.concatenate([vectorizer([text]) for text in texts[:10]])
    assert (alone * rows[:10]).sum(axis=1).min() >= 0.9998


def test_bfloat16_correlates_with_human_judgement_as_float32_does(data: Path) -> None:
    pairs = [line.split("\t") for line in (data / "sts16.tsv").read_text().splitlines()]
    found = {}
    for dtype in ("float32", "bfloat16"):
        vectorizer = TextVectorizer(
            find_model("bundled", None), name="m", dtype=dtype, warmup="off", max_batch_tokens=2048
        )
        rows = vectorizer([pair[i] for pair in pairs for i in (1, 2)])
        cosines = (rows[::2] * rows[1::2]).sum(axis=1)
        found[dtype] = 100 * spearmanr(cosines, [float(pair[0]) for pair in pairs]).statistic
    assert found["bfloat16"] == pytest.approx(found["float32"], abs=0.1)


def test_the_warm_up_measures_single_forwards_and_counts_workers_on_what_the_service_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    forward = PackedForward.__call__

    def watched(self: PackedForward, texts: list[TokenIds]) -> Any:
        sizes.append(sum(text.n_tokens for text in texts))
        return forward(self, texts)

    monkeypatch.setattr(PackedForward, "__call__", watched)
    vectorizer = TextVectorizer(
        find_model("bundled", None), name="m", dtype="float32", warmup="quick", workers=0, max_batch_tokens=64,
        max_batch_items=40,
    )  # fmt: skip
    info = vectorizer.info
    assert info.max_batch_tokens == 64
    assert {step.tokens for step in info.warmup} <= set(sizes), "each step was one forward"
    assert max(step.tokens for step in info.warmup) > 64
    sizes.clear()
    vectorizer(["word"] * 100)
    assert max(sizes) <= 64


def test_without_a_warm_up_nothing_is_measured() -> None:
    info = TextVectorizer(find_model("bundled", None), name="m", dtype="float32", warmup="off", workers=0).info
    assert (info.max_batch_tokens, info.workers, info.warmup) == (1024, 1, ())


def test_long_texts_are_cut_as_sentence_transformers_cuts_them_or_from_the_left(
    vectorizer: TextVectorizer, reference: SentenceTransformer
) -> None:
    text = " ".join(str(i) for i in range(600))
    right, left = vectorizer.tokenize([TextInput(text), TextInput(text, cut_left=True)])
    assert right.n_tokens == left.n_tokens == vectorizer.info.max_input_tokens == 256
    assert right.n_cut == left.n_cut > 0
    assert right.ids[0] == left.ids[0]
    assert right.ids[-1] == left.ids[-1]
    assert reference.tokenizer.decode(left.ids, skip_special_tokens=True).endswith("598 599")
    np.testing.assert_allclose(vectorizer([right]), encode(reference, [text]), atol=2e-6)


def test_token_ids_give_the_vector_of_their_text(vectorizer: TextVectorizer) -> None:
    (encoding,) = vectorizer.tokenize([TextInput("Where is my card?")])
    (from_ids,) = vectorizer.tokenize([TextInput(encoding.ids)])
    assert from_ids == encoding
    (prompted,) = vectorizer.tokenize([TextInput(encoding.ids, prompt="query: ")])
    assert prompted.ids == vectorizer.tokenize([TextInput("query: where is my card?")])[0].ids


def test_it_says_what_it_is(vectorizer: TextVectorizer) -> None:
    info = vectorizer.info
    assert (info.dimension, info.max_input_tokens, info.max_batch_tokens) == (384, 256, 600)
    assert info.dtype == "float32"
    assert info.warmup
    assert info.details["modules"] == ["Transformer", "Pooling", "Normalize"]


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("no room"), RuntimeError("DefaultCPUAllocator: can't allocate memory: there is no room")],
)
def test_running_out_of_memory_is_reported_as_such(
    error: Exception, vectorizer: TextVectorizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise error

    monkeypatch.setattr(vectorizer, "_forward", full)
    with pytest.raises(OutOfMemory, match="no room"):
        vectorizer(["a"])


def test_a_model_whose_vectors_come_out_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextTokenizer, "_cut", lambda self, one, ids: TokenIds(ids[:2]))
    with pytest.raises(StartFailed, match="do not come out"):
        TextVectorizer(find_model("bundled", None), name="m")


def test_a_tokenizer_that_panics_fails_as_an_error_and_not_as_the_end_of_its_thread(
    vectorizer: TextVectorizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    panic = type("PanicException", (BaseException,), {})

    class Panicking:
        def encode_batch_fast(self, texts: list[str]) -> None:
            raise panic("index out of bounds")

    monkeypatch.setattr(vectorizer._tokenizer, "_tokenizer", Panicking())
    with pytest.raises(TokenizerFailed, match="index out of bounds"):
        vectorizer.tokenize([TextInput("a")])


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A folder with the bundled model under prompts of its own that are left out when pooling."""
    folder = tmp_path / "small"
    model = SentenceTransformer(find_model("bundled", None).location, device="cpu", local_files_only=True)
    model.prompts = {"query": "Represent this sentence: ", "passage": ""}
    model.default_prompt_name = "query"
    model.set_pooling_include_prompt(False)
    model.save(str(folder))
    return folder


def test_prompts_that_pooling_leaves_out_come_out_as_in_sentence_transformers(small_model: Path) -> None:
    vectorizer = TextVectorizer(find_model(str(small_model), None), name="small", dtype="float32", warmup="off")
    reference = SentenceTransformer(str(small_model), device="cpu", local_files_only=True)
    texts = ragged_texts(8, 30)
    assert vectorizer.info.default_prompt_name == "query"
    assert ((vectorizer(texts) * encode(reference, texts)).sum(axis=1)).min() >= 0.99999
    plain = vectorizer.tokenize([TextInput(text) for text in texts])
    prompted = vectorizer.tokenize([TextInput(text, prompt="Represent this sentence: ") for text in texts])
    mixed = vectorizer([one for pair in zip(plain, prompted, strict=True) for one in pair])
    assert ((mixed[1::2] * encode(reference, texts)).sum(axis=1)).min() >= 0.99999
    assert ((mixed[::2] * encode(reference, texts, prompt="")).sum(axis=1)).min() >= 0.99999


def test_a_second_worker_shares_the_weights_on_a_cpu(vectorizer: TextVectorizer) -> None:
    other = vectorizer.for_worker(1)
    assert other._forward is vectorizer._forward


# --- where models come from -----------------------------------------------------------------------------------------


def test_the_bundled_model_is_the_published_one() -> None:
    source = find_model("bundled", None)
    assert source.name == "sentence-transformers/all-MiniLM-L6-v2"
    assert source.local


def test_a_bundled_model_that_was_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BUNDLED_SHA256", "0" * 64)
    with pytest.raises(StartFailed, match="not the published model"):
        find_model("bundled", None)


def test_a_folder_is_checked_and_a_hub_id_keeps_its_revision(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match=r"neither modules\.json nor config\.json"):
        find_model(str(tmp_path), None)
    with pytest.raises(StartFailed, match="no such folder"):
        find_model(str(tmp_path / "missing"), None)
    assert find_model("some/model", "v1") == ModelSource("some/model", "some/model", "v1", local=False)


def test_a_folder_that_holds_no_model_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(StartFailed, match="cannot be loaded"):
        TextVectorizer(find_model(str(tmp_path), None), name="x")
