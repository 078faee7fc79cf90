"""The texts that are sent: a file's lines, or questions made here, about as long as customers' are."""

import itertools
import random
from pathlib import Path

BEGINNINGS = (
    "where is", "how do I change", "I still wait for", "please cancel", "what happens to", "I cannot find",
    "why was I charged for", "is there a limit on", "somebody used", "I would like a copy of", "who can see",
)  # fmt: skip
THINGS = (
    "my card", "the transfer to my landlord", "a refund", "my new PIN", "the monthly fee", "my old address",
    "the exchange rate", "a payment in another currency", "my direct debit", "the cash machine's receipt",
)  # fmt: skip
ENDINGS = (
    "", "today", "since last week", "although the app says that it is done", "before I travel on Friday",
    "and whom do I have to call about it", "because it shows twice on my statement, once with a different amount",
    "which your colleague promised me on the phone two weeks ago, when I had already sent all of the documents twice",
)  # fmt: skip


def texts_from(file: Path | None, *, seed: int = 1) -> list[str]:
    """The lines of the file that are not empty, or made-up questions: each once, shuffled alike for each seed."""
    if file is not None:
        texts = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    else:
        texts = [_question(words) for words in itertools.product(BEGINNINGS, THINGS, ENDINGS)]
    texts = list(dict.fromkeys(texts))  # a server that computes equal texts once should gain nothing here
    random.Random(seed).shuffle(texts)
    return texts


def passages_from(texts: list[str], *, count: int = 400, each: int = 8, seed: int = 2) -> list[str]:
    """What an index is built of: passages of `each` texts."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(texts, k=each)) for _ in range(count)]


def _question(words: tuple[str, ...]) -> str:
    return " ".join(word for word in words if word) + "?"
