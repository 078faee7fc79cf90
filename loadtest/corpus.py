"""The texts that a load test sends: questions and passages of realistic lengths, drawn from a seed, or from a file."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from loadtest.errors import LoadTestFailed


class Words(NamedTuple):
    """How many words texts have: log-normal, as lengths of what people write are, between two bounds."""

    median: float
    sigma: float
    least: int
    most: int

    def draw(self, rng: random.Random) -> int:
        """One length, in words."""
        return round(min(self.most, max(self.least, self.median * rng.lognormvariate(0, self.sigma))))


QUERY = Words(median=9, sigma=0.55, least=3, most=48)
PASSAGE = Words(median=70, sigma=0.5, least=20, most=220)

OPENINGS = (
    "where is", "what happened to", "how do I get", "can I still change", "who decides about", "please help me with",
    "is there a way to track", "what does it cost to replace", "why can nobody tell me about", "when will I receive",
    "I want to complain about", "compare prices of", "how long does it take to repair", "explain", "best",
)  # fmt: skip
THINGS = (
    "my parcel", "the refund", "a lost library card", "the heating bill", "an annual ticket", "my appointment",
    "the garden hose", "a second key", "the warranty", "night trains to the coast", "winter tyres", "the router",
    "a birth certificate", "the swimming course", "my old phone number", "bread without yeast", "a used violin",
    "the parking permit", "solar panels", "the insurance claim", "a quiet dishwasher", "walking shoes",
)  # fmt: skip
DETAILS = (
    "today", "since last Tuesday", "for two adults and a child", "in the north of the city", "without a receipt",
    "although the message says that it was delivered", "because the first one arrived broken", "before the end of May",
    "if I have moved to another town in the meantime", "and nobody answers the telephone", "under thirty euros",
    "that fits into a small kitchen", "while the office is closed", "as a present for my grandmother",
    "even though I have paid twice", "on a public holiday", "with a discount for students",
)  # fmt: skip
SENTENCES = (
    "The ferry leaves from the eastern pier at ten past every hour, and the last one returns shortly before midnight.",
    "Whoever borrows a bicycle leaves a deposit, which is paid back as soon as the lock has been returned.",
    "Rain fell for nine days, so that the lower meadows stood under water until the middle of June.",
    "A dough that rests overnight in a cool place needs less yeast and keeps fresh for longer.",
    "The committee met four times and agreed on everything but the colour of the doors.",
    "Before the filter is changed, close the valve, wait for the pressure to fall, and put a bowl underneath.",
    "Most visitors take the path along the river; the one across the ridge is shorter, but steep and without shade.",
    "Her second novel sold poorly at first and is now read in every school of the country.",
    "Payments made after four in the afternoon are booked on the following working day.",
    "The old mill was turned into a workshop where apprentices learn to repair clocks and barometers.",
    "If the lamp blinks twice, the battery is low; if it stays red, the device must be sent in.",
    "Apples of this kind are picked late and taste best after some weeks in the cellar.",
    "The orchestra rehearses on Mondays, and guests may listen from the gallery without a ticket.",
    "In the first year the cooperative had eleven members, two vans and no office.",
    "Engineers measured the bridge every spring and found that it moves by less than a finger's breadth.",
    "Cancel in writing, at least fourteen days before the contract would be prolonged by a year.",
    "The museum shows maps of the harbour from three centuries, some of them drawn on board.",
    "Sand the surface lightly, remove the dust with a damp cloth, and let the first coat dry for six hours.",
    "Nobody knows why the bells of the two churches have always been a minute apart.",
    "Data are kept for ninety days and then deleted, unless a court has asked for them.",
    "Between the villages there is a bus on schooldays only; at other times, call a shared taxi.",
    "The storm took the roof off the barn, and the neighbours had it back on within a week.",
    "Small firms pay a flat fee, larger ones according to the number of people who use the program.",
    "When the snow melts, the stream carries more water than the culvert was built for.",
)


class Corpus:
    """Texts without end, the same ones for the same seed.

    Own texts carry a number each, so that no two are alike and no server can answer from what it has just computed.
    Texts of a file come as they are, over and over, in an order drawn anew.
    """

    def __init__(self, seed: int, texts: Sequence[str] | None = None) -> None:
        self._rng = random.Random(seed)
        self._texts = texts

    @classmethod
    def of_file(cls, path: Path, seed: int) -> "Corpus":
        """A text in each line; raises LoadTestFailed where there is none."""
        try:
            texts = [line for line in path.read_text().splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise LoadTestFailed(f"--texts {path} cannot be read: {error}.") from error
        if not texts:
            raise LoadTestFailed(f"--texts {path} holds no text; it takes one a line.")
        return cls(seed, texts)

    def query(self) -> str:
        """What somebody types into a search box."""
        return self._rng.choice(self._texts) if self._texts else self._own_query(QUERY.draw(self._rng))

    def passage(self) -> str:
        """A piece of a document, as an index holds it."""
        return self._rng.choice(self._texts) if self._texts else self._own_passage(PASSAGE.draw(self._rng))

    def _own_query(self, n_words: int) -> str:
        rng = self._rng
        words = (
            [*rng.choice(OPENINGS).split(), *rng.choice(THINGS).split()] if n_words > 4 else rng.choice(THINGS).split()
        )
        while len(words) < n_words - 1:
            words += rng.choice(DETAILS).split()
        return " ".join([*words[: n_words - 1], str(rng.randrange(10**7))])

    def _own_passage(self, n_words: int) -> str:
        words = ["No.", str(self._rng.randrange(10**7)) + "."]
        while len(words) < n_words:
            words += self._rng.choice(SENTENCES).split()
        return " ".join(words[:n_words])
