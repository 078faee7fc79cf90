"""ClassifierVectorizer against sentence-transformers' own CrossEncoder, on small random models."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import CrossEncoder, SentenceTransformer
from tokenizers import Tokenizer

from app.errors import NotFinite, OutOfMemory, StartFailed, WrongModel
from app.settings import Settings
from app.vectorizers import load_vectorizer
from app.vectorizers.base import Matrix, TextInput
from app.vectorizers.classifier import ClassifierVectorizer
from app.vectorizers.forward import encoder, heads, row
from app.vectorizers.kinds import is_classifier
from app.vectorizers.loaded_classifier import LoadedClassifier
from app.vectorizers.pairs import PairTokenizer, share_room
from app.vectorizers.sources import find_model
from app.vectorizers.text import TextVectorizer
from tests.small_models import N_POSITIONS, ragged, save_classifier, save_model, tokenizer
from tests.test_families import Reads

FIRST = ragged([1, 3, 14, 15, 16, 29, 31, 40, 64, 7, 90, 2, 150, 79])
SECOND = ragged([2, 1, 15, 17, 33, 8, 30, 90, 20, 100, 60, 155, 3, 80])
PAIRS: list[tuple[str, str | None]] = [*zip(FIRST, SECOND, strict=True)]
LONG: list[tuple[str, str | None]] = [*zip(ragged([200, 10, 300, 81]), ragged([10, 300, 300, 78]), strict=True)]
ALONE: list[tuple[str, str | None]] = [(text, None) for text in (*FIRST, *ragged([158, 159, 400]))]
CHANGES: dict[str, dict[str, Any]] = {"gte": {"type_vocab_size": 2}}
PADDED = "padded, sorted by length"


def load(folder: Path, **options: Any) -> ClassifierVectorizer:
    return ClassifierVectorizer(
        find_model(str(folder), None), name="small", device="cpu", **{"dtype": "float32", "warmup": "off", **options}
    )


def inputs(pairs: list[tuple[str, str | None]]) -> list[TextInput]:
    return [TextInput(first, pair=second, normalize=False) for first, second in pairs]


def logits(vectorizer: ClassifierVectorizer, pairs: list[tuple[str, str | None]]) -> Matrix:
    return vectorizer(vectorizer.tokenize(inputs(pairs)))


def reference(folder: Path, pairs: list[tuple[str, str | None]]) -> Matrix:
    model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
    model.max_seq_length = N_POSITIONS
    rows: list[Any] = [
        model.predict(first if second is None else (first, second), activation_fn=torch.nn.Identity())
        for first, second in pairs
    ]
    return np.array(rows, np.float32).reshape(len(pairs), -1)


@pytest.mark.parametrize("family", heads.HEADS)
def test_a_packed_family_has_the_logits_of_cross_encoder_in_any_order_and_company(family: str, tmp_path: Path) -> None:
    folder = save_classifier(tmp_path, family, 3, changes=CHANGES.get(family))
    vectorizer = load(folder, max_batch_tokens=300)
    assert vectorizer.info.details["forward"] == "packed"
    everything = [*PAIRS, *LONG, *ALONE]
    random.Random(1).shuffle(everything)
    rows = logits(vectorizer, everything)
    assert rows.dtype == np.float32
    expected = reference(folder, everything)
    np.testing.assert_allclose(rows, expected, atol=1e-4 * np.abs(expected).max())
    assert np.ptp(expected, axis=0).min() > 0.01, "they differ enough for mistakes to show"
    order = random.Random(2).sample(range(len(everything)), len(everything))
    np.testing.assert_allclose(logits(vectorizer, [everything[i] for i in order]), rows[order], atol=2e-5)


@pytest.mark.parametrize(
    ("family", "reason"),
    [("mpnet", "the architecture mpnet is not among"), ("qwen3", "the architecture qwen3 is not among")],
)
def test_what_cannot_be_packed_is_padded_and_says_why(
    family: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_classifier(tmp_path, family, 2)
    vectorizer = load(folder)
    assert vectorizer.info.details["forward"] == PADDED
    assert reason in capsys.readouterr().out
    everything = [*PAIRS, *LONG, *ALONE]
    expected = reference(folder, everything)
    np.testing.assert_allclose(logits(vectorizer, everything), expected, atol=1e-4 * np.abs(expected).max())


def test_a_padded_forward_tells_token_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(heads.HEADS, "bert")
    folder = save_classifier(tmp_path, "bert", 2)
    vectorizer = load(folder)
    assert vectorizer.info.details["forward"] == PADDED
    everything = [*PAIRS, *ALONE]
    expected = reference(folder, everything)
    np.testing.assert_allclose(logits(vectorizer, everything), expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("typed", [True, False])
def test_token_types_count_where_the_models_tokenizer_gives_them(typed: bool, tmp_path: Path) -> None:
    folder = save_classifier(tmp_path, "bert", 1, typed=typed)
    vectorizer = load(folder)
    (encoding,) = vectorizer.tokenize(inputs([("abc", "de")]))
    assert encoding.types == ([0, 0, 0, 0, 0, 1, 1, 1] if typed else None)
    as_one_text = encoding._replace(types=None)
    assert np.allclose(vectorizer([encoding]), vectorizer([as_one_text]), atol=1e-3) is not typed
    np.testing.assert_allclose(vectorizer([encoding]), reference(folder, [("abc", "de")]), atol=1e-4)


def test_a_packed_forward_that_forgets_the_types_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.vectorizers.forward.packed.add_types", lambda packed, *_: packed)
    folder = save_classifier(tmp_path, "bert", 3)
    vectorizer = load(folder)
    assert vectorizer.info.details["forward"] == PADDED
    assert "packed vectors differ from sentence-transformers' own" in capsys.readouterr().out
    np.testing.assert_allclose(logits(vectorizer, PAIRS), reference(folder, PAIRS), atol=1e-3)


def test_a_model_whose_logits_come_out_wrong_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_classifier(tmp_path, "bert", 3)
    monkeypatch.setattr(LoadedClassifier, "expected", lambda self: 1 + self.predict([("a", None)] * 9))
    with pytest.raises(StartFailed, match="do not come out"):
        load(folder)


def test_a_tokenizer_that_cuts_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_classifier(tmp_path, "bert", 3)
    monkeypatch.setattr("app.vectorizers.pairs.share_room", lambda first, second, room: (room, 0))
    with pytest.raises(StartFailed, match="does not cut long pairs as"):
        load(folder)


def test_a_tokenizer_that_cuts_at_the_other_end_is_refused_whatever_its_words(tmp_path: Path) -> None:
    folder = save_classifier(tmp_path, "bert", 1, changes={"vocab_size": 31_000, "max_position_embeddings": 512})
    words = SentenceTransformer(find_model("bundled", None).location, device="cpu", local_files_only=True).tokenizer
    words.model_max_length = 512  # so long that no check pair is cut
    words.truncation_side = "left"
    words.save_pretrained(folder)
    with pytest.raises(StartFailed, match="does not cut long texts as"):
        load(folder)


def test_a_decoder_without_a_padding_token_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match=r"cannot be run in batches: .*padding token"):
        load(save_classifier(tmp_path, "qwen3", 2, changes={"pad_token_id": None}))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_modernbert_pools_as_its_configuration_says(pooling: str, tmp_path: Path) -> None:
    folder = save_classifier(tmp_path, "modernbert", 2, changes={"classifier_pooling": pooling})
    vectorizer = load(folder)
    assert vectorizer.info.details["forward"] == "packed"
    np.testing.assert_allclose(logits(vectorizer, PAIRS), reference(folder, PAIRS), atol=1e-3)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_bfloat16_stays_close(family: str, tmp_path: Path) -> None:
    folder = save_classifier(tmp_path, family, 3, changes={"initializer_range": 0.05})
    vectorizer = load(folder, dtype="bfloat16")
    assert vectorizer.info.details["forward"] == "packed"
    assert vectorizer.info.dtype == "bfloat16"
    np.testing.assert_allclose(logits(vectorizer, PAIRS), reference(folder, PAIRS), atol=0.05)


def test_it_says_what_it_is(tmp_path: Path) -> None:
    changes = {"id2label": {0: "joy", 1: "anger", 2: "fear"}, "problem_type": "multi_label_classification"}
    info = load(save_classifier(tmp_path, "distilbert", 3, changes=changes)).info
    assert (info.kind, info.labels, info.dimension) == ("classification", ("joy", "anger", "fear"), 3)
    assert info.max_input_tokens == N_POSITIONS
    assert info.details["activation"] == "Identity"
    assert info.details["problem_type"] == "multi_label_classification"
    assert info.details["architecture"] == "DistilBertForSequenceClassification"
    assert info.details["parameters"] > 1000


def test_a_reranker_has_one_label_and_cross_encoders_sigmoid(tmp_path: Path) -> None:
    vectorizer = load(save_classifier(tmp_path, "xlm-roberta", 1))
    assert vectorizer.info.details["activation"] == "Sigmoid"
    assert vectorizer.info.labels == ("LABEL_0",)
    assert vectorizer(["a", "b"]).shape == (2, 1)
    assert vectorizer([]).shape == (0, 1)


def test_an_activation_that_the_model_names_is_told(tmp_path: Path) -> None:
    folder = save_classifier(tmp_path, "bert", 1)
    config = json.loads((folder / "config.json").read_text())
    config["sentence_transformers"] = {"activation_fn": "torch.nn.modules.linear.Identity"}
    (folder / "config.json").write_text(json.dumps(config))
    assert load(folder).info.details["activation"] == "Identity"


def test_it_gives_no_token_vectors_and_tells_a_number_that_is_none(tmp_path: Path) -> None:
    vectorizer = load(save_classifier(tmp_path, "bert", 2))
    encodings = vectorizer.tokenize([TextInput("a")])
    with pytest.raises(WrongModel, match="classifies texts"):
        vectorizer.token_vectors(encodings)
    vectorizer._forward = lambda texts: np.full((len(texts), 2), np.nan, np.float32)  # type: ignore[assignment]
    with pytest.raises(NotFinite):
        vectorizer(encodings)


def test_running_out_of_memory_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectorizer = load(save_classifier(tmp_path, "bert", 2))

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(vectorizer, "_forward", full)
    with pytest.raises(OutOfMemory, match="no room"):
        vectorizer(["a"])


def test_the_warm_up_measures_and_counts_workers(tmp_path: Path) -> None:
    info = load(save_classifier(tmp_path, "bert", 2), warmup="quick", workers=0, max_batch_items=32).info
    assert info.warmup
    assert info.batch_token_s > 0
    assert info.workers >= 1


def test_the_models_default_prompt_is_put_before_the_first_text_as_cross_encoder_does(tmp_path: Path) -> None:
    model = CrossEncoder(str(save_classifier(tmp_path / "plain", "bert", 2)), device="cpu")
    model.prompts = {"query": "query9"}
    model.default_prompt_name = "query"
    model.save(str(tmp_path / "prompted"))
    vectorizer = load(tmp_path / "prompted")
    assert vectorizer.info.prompts == {"query": "query9"}
    expected = reference(tmp_path / "prompted", [*PAIRS, *ALONE])
    assert np.abs(expected - reference(tmp_path / "plain", [*PAIRS, *ALONE])).max() > 0.1
    np.testing.assert_allclose(logits(vectorizer, [*PAIRS, *ALONE]), expected, atol=1e-4)


@pytest.mark.parametrize("family", heads.HEADS)
def test_a_packed_forward_reads_no_value_before_its_end(family: str, tmp_path: Path) -> None:
    vectorizer = load(save_classifier(tmp_path, family, changes=CHANGES.get(family)))
    encodings = vectorizer.tokenize(inputs(PAIRS))
    with torch.inference_mode(), Reads() as reads:
        vectorizer._forward(encodings)
    assert reads.count == 0


# --- cutting --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair_tokenizer() -> PairTokenizer:
    return PairTokenizer(tokenizer(left=False, typed=True), max_tokens=12, embedded_tokens=40, positions=None)


def test_long_pairs_are_cut_at_the_end_asked_for_and_special_tokens_stay(pair_tokenizer: PairTokenizer) -> None:
    whole = TextInput("abcdefghij", pair="0123456")
    right, left = pair_tokenizer([whole, whole._replace(cut_left=True)])
    assert right.n_cut == left.n_cut == 8
    assert right.n_tokens == left.n_tokens == 12
    assert pair_tokenizer.decode([right.ids, left.ids], skip_special=False) == [
        "<s> a b c d e </s> 0 1 2 3 </s>",
        "<s> f g h i j </s> 3 4 5 6 </s>",
    ]
    assert right.types == left.types == [0] * 7 + [1] * 5


def test_a_text_alone_is_cut_like_any_other_and_ids_are_taken_as_they_are(pair_tokenizer: PairTokenizer) -> None:
    right, left, ids, prompted = pair_tokenizer(
        [
            TextInput("abcdefghijklmn"),
            TextInput("abcdefghijklmn", cut_left=True),
            TextInput([1, 4, 5, 2]),
            TextInput([1, 5, 2], prompt="a", pair="c"),
        ]
    )
    assert pair_tokenizer.decode([right.ids, left.ids], skip_special=True) == [
        "a b c d e f g h i j",
        "e f g h i j k l m n",
    ]
    assert (right.n_cut, ids.ids, ids.n_cut) == (4, [1, 4, 5, 2], 0)
    assert prompted.ids == [1, 4, 5, 2, 6, 2]


@given(st.integers(0, 40), st.integers(0, 40), st.integers(3, 40))
def test_room_is_shared_as_the_library_shares_it(first: int, second: int, most: int) -> None:
    library = Tokenizer.from_str(tokenizer(left=False).backend_tokenizer.to_str())
    library.enable_truncation(most, strategy="longest_first")
    kept = library.encode("a" * first, "b" * second).ids
    assert (kept.count(4), kept.count(5)) == share_room(first, second, most - 3)


# --- which kind a model is ------------------------------------------------------------------------------------------


def test_the_kind_is_found_in_the_models_files(tmp_path: Path) -> None:
    plain = save_classifier(tmp_path / "plain", "bert", 1)
    CrossEncoder(str(plain), device="cpu").save(str(tmp_path / "saved"))
    for folder in (plain, tmp_path / "saved"):
        assert is_classifier(find_model(str(folder), None))
        vectorizer = load_vectorizer(Settings(model=str(folder), warmup="off", dtype="float32"))
        assert isinstance(vectorizer, ClassifierVectorizer)
        np.testing.assert_allclose(logits(vectorizer, PAIRS), reference(plain, PAIRS), atol=1e-4)
    embedding = save_model(tmp_path / "embedding", "bert")
    for folder in (embedding, tmp_path / "embedding" / "bare"):
        assert not is_classifier(find_model(str(folder), None))
        assert isinstance(load_vectorizer(Settings(model=str(folder), warmup="off")), TextVectorizer)


def test_an_embedding_model_that_was_made_of_a_classifier_stays_one(tmp_path: Path) -> None:
    folder = save_model(tmp_path, "bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertForSequenceClassification"]}))
    assert not is_classifier(find_model(str(folder), None))
    (folder / "config_sentence_transformers.json").unlink()
    assert not is_classifier(find_model(str(folder), None)), "modules.json is enough"
    (folder / "modules.json").unlink()
    assert is_classifier(find_model(str(folder), None))


def test_files_that_cannot_be_read_end_the_start_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(StartFailed, match=r"cannot be loaded: config\.json"):
        is_classifier(find_model(str(tmp_path), None))


def test_a_pair_of_types_has_positions_of_its_own() -> None:
    packed = row.pack([[5, 6, 7], [8, 9]], lambda n: 8)
    typed = row.add_types(packed, [[0, 1, 1], None], 100)
    assert typed.positions.tolist() == [0, 101, 102, 0, 1, 0, 0, 0]
    assert packed.positions.tolist() == packed.places.tolist() == [0, 1, 2, 0, 1, 0, 0, 0], "the row stays as it was"
    assert row.add_types(packed, [[0, 0, 0], None], 100).positions.tolist() == packed.positions.tolist()


def test_an_encoder_for_vectors_knows_no_types(tmp_path: Path) -> None:
    folder = save_classifier(tmp_path, "bert", 1)
    model: Any = CrossEncoder(str(folder), device="cpu").model
    assert encoder.encoder_of(model.base_model).type_stride == 0
    assert encoder.encoder_of(model.base_model, typed=True).type_stride == model.config.max_position_embeddings
