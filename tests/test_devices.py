"""Choosing a device, and explaining why one is not there; no GPU is needed."""

import pytest
import torch

from app.errors import StartFailed
from app.vectorizers import devices


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that this process sees two cards."""
    monkeypatch.setattr(devices, "card_names", lambda: ["Card A", "Card B"])


@pytest.mark.usefixtures("two_cards")
def test_auto_takes_a_card_where_there_is_one_and_each_worker_its_own() -> None:
    assert devices.choose_device("auto", 0, None) == torch.device("cuda", 0)
    assert devices.choose_device("auto", 1, None) == torch.device("cuda", 1)
    assert devices.choose_device("cuda:1", 0, None) == torch.device("cuda", 1)


@pytest.mark.usefixtures("two_cards")
def test_a_missing_card_is_explained_with_those_that_are_there_and_their_physical_numbers() -> None:
    with pytest.raises(StartFailed) as refused:
        devices.choose_device("cuda:2", 0, "3,5")
    message = str(refused.value)
    assert "cuda:2" in message
    assert "cuda:0 is Card A, card 3 of the machine" in message
    assert "cuda:1 is Card B, card 5 of the machine" in message


def test_no_card_at_all_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "card_names", list)
    with pytest.raises(StartFailed, match="sees no CUDA card"):
        devices.choose_device("cuda", 0, None)
    assert devices.choose_device("cpu", 3, None) == torch.device("cpu")


def test_the_cores_granted_are_those_of_this_process() -> None:
    assert devices.granted_cores() >= 1
