"""Which card is which: from the numbers that torch uses to the machine's own, in sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

FASTEST_FIRST, PCI_BUS_ID = "FASTEST_FIRST", "PCI_BUS_ID"


@dataclass(frozen=True, slots=True)
class Card:
    """A CUDA card that this process sees. `physical` is the number that nvidia-smi gives it, None where nobody can
    say."""

    logical: int
    name: str
    uuid: str
    capability: str
    physical: int | None
    total_bytes: int
    free_bytes: int
    peak_bytes: int
    """The most that torch has held for tensors since the process began."""


def explain_cards(cards: Sequence[Card], visible: str | None, order: str | None, *, cuda: str | None) -> Sequence[str]:
    """What the cards are called, and why. `visible` and `order` are CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, None
    where they are not set; `cuda` is the version that torch is built for."""
    if not cards:
        return [_why_none(visible, cuda)]
    return [*[_which(card) for card in cards], *_visible(cards, visible), *_order(cards, visible, order)]


def _why_none(visible: str | None, cuda: str | None) -> str:
    if cuda is None:
        return "There is no CUDA card for this process: torch is built without CUDA."
    if visible is not None and not _entries(visible):
        said = (
            f"CUDA_VISIBLE_DEVICES={visible} names none" if visible.strip() else "CUDA_VISIBLE_DEVICES is set and empty"
        )
        return f"This process sees no CUDA card: {said}, which hides all of them."
    if visible is not None:
        return (
            f"This process sees no CUDA card: CUDA_VISIBLE_DEVICES={visible} names none that is there (CUDA reads it "
            "as far as the first entry that it does not know), or there is none."
        )
    return f"This process sees no CUDA card, though torch is built for CUDA {cuda}: is there a driver?"


def _which(card: Card) -> str:
    number = "" if card.physical is None else f", number {card.physical} in nvidia-smi"
    return f"cuda:{card.logical} is {card.name}{number}, {card.uuid}."


def _visible(cards: Sequence[Card], visible: str | None) -> list[str]:
    if visible is None:
        return ["CUDA_VISIBLE_DEVICES is not set: this process sees every card."]
    entries = _entries(visible)
    named = ", ".join(f"cuda:{card.logical} is its entry {one}" for card, one in zip(cards, entries, strict=False))
    sentences = [f"CUDA_VISIBLE_DEVICES={visible} chooses cards and numbers them anew: {named}."]
    if len(entries) > len(cards):
        sentences.append(
            f"CUDA took {len(cards)} of its {len(entries)} entries: it stops at the first that names no card, here "
            f"{entries[len(cards)]}."
        )
    return sentences


def _order(cards: Sequence[Card], visible: str | None, order: str | None) -> list[str]:
    """What an entry's number means, which only matters where numbers are used."""
    if visible is not None and not any(one.isdecimal() for one in _entries(visible)):
        return ["Its entries are the cards' own ids, which mean the same card whatever CUDA_DEVICE_ORDER says."]
    if order == PCI_BUS_ID:
        return ["CUDA_DEVICE_ORDER=PCI_BUS_ID: CUDA counts the cards as nvidia-smi does."]
    said = "CUDA_DEVICE_ORDER is not set" if order is None else f"CUDA_DEVICE_ORDER={order}"
    if order not in (None, FASTEST_FIRST):
        said += ", which CUDA does not know"
    if visible is None and len(cards) == 1:
        return [f"{said}; with one card there is no order to mistake."]
    return [
        f"{said}: CUDA counts the fastest card first, nvidia-smi in the order of the slots, so that the same number "
        "may mean two cards. CUDA_DEVICE_ORDER=PCI_BUS_ID makes them agree."
    ]


def _entries(visible: str) -> list[str]:
    """The entries as far as CUDA could read them: -1, like any number below 0, ends the list."""
    entries = [one.strip() for one in visible.split(",")]
    found: list[str] = []
    for one in entries:
        if not one or one.startswith("-"):
            break
        found.append(one)
    return found
