"""Choosing the number type, with hardware and clocks that are made up."""

import json
from pathlib import Path

import pytest
import torch

from app.vectorizers import dtypes
from app.vectorizers.sources import ModelSource, find_model

CPU = torch.device("cpu")
AMPERE, TURING = (8, 0), (7, 5)
BUNDLED = find_model("bundled", None)


def test_what_is_asked_for_is_taken() -> None:
    assert dtypes.choose_dtype("float16", CPU, BUNDLED) == torch.float16
    assert dtypes.choose_dtype("bfloat16", CPU, BUNDLED) == torch.bfloat16


@pytest.mark.parametrize(
    ("hardware", "gain", "expected"),
    [
        (True, 2.0, torch.bfloat16),
        (True, 1.0, torch.float32),
        (False, 2.0, torch.float32),
    ],
)
def test_a_cpu_takes_bfloat16_where_it_has_it_and_gains_by_it(
    hardware: bool, gain: float, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dtypes, "has_bfloat16_hardware", lambda: hardware)
    monkeypatch.setattr(dtypes, "bfloat16_gain", lambda: gain)
    assert dtypes.choose_dtype("auto", CPU, BUNDLED) == expected


def test_the_probe_compares_the_best_of_several_alternated_rounds() -> None:
    durations = iter([9.0, 3.0, 4.0, 2.0, 8.0, 2.5, 6.0, 5.0, 7.0, 9.0])  # float32, bfloat16, float32, …
    now = 0.0
    ticks = 0

    def clock() -> float:
        nonlocal now, ticks
        ticks += 1
        if ticks % 2 == 0:
            now += next(durations)
        return now

    assert dtypes.bfloat16_gain(clock) == pytest.approx(4.0 / 2.0)


@pytest.mark.parametrize(
    ("family", "own", "capability", "expected"),
    [
        ("bert", torch.float32, AMPERE, torch.float16),
        (None, None, AMPERE, torch.float16),
        ("qwen3", torch.bfloat16, AMPERE, torch.bfloat16),
        ("qwen3", torch.bfloat16, TURING, torch.float16),
        ("gemma3_text", torch.float32, AMPERE, torch.bfloat16),
        ("gemma3_text", torch.float32, TURING, torch.float32),
    ],
)
def test_a_card_takes_the_models_better_half_type(
    family: str | None, own: torch.dtype | None, capability: tuple[int, int], expected: torch.dtype
) -> None:
    assert dtypes.half_for_card(family, own, capability) == expected


def test_the_checkpoint_names_its_family_and_number_type_or_nothing(tmp_path: Path) -> None:
    assert dtypes.checkpoint(BUNDLED)[0] == "bert"
    assert dtypes.checkpoint(ModelSource(str(tmp_path), "empty")) == (None, None)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3", "torch_dtype": "bfloat16"}))
    assert dtypes.checkpoint(ModelSource(str(tmp_path), "small")) == ("qwen3", torch.bfloat16)
