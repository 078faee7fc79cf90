"""The lines of a bill of one call: their names, and what each means on which kind of device."""

from typing import Literal

Kind = Literal["cpu", "cuda", "mps", "simulated"]
Key = Literal["tokenization", "python", "launches", "copies", "compute", "pooling", "synchronisation", "not_attributed"]

TITLES: dict[Key, str] = {
    "tokenization": "tokenization",
    "python": "Python and dispatch",
    "launches": "small operators",
    "copies": "copies",
    "compute": "compute",
    "pooling": "pooling",
    "synchronisation": "synchronisation",
    "not_attributed": "not attributed",
}
"""In the order in which a bill shows them."""
TITLES_ON_CUDA: dict[Key, str] = TITLES | {"launches": "launches"}

NOT_ATTRIBUTED = (
    "What the lines above leave of the whole, each being a median of its own; below zero where they are more. It grows "
    "with the unrest of the machine."
)
MEANING_ON_CPU: dict[Key, str] = {
    "tokenization": "From texts to token ids, by the library `tokenizers`; the service does it on a thread of its own.",
    "python": "Between operators: laying out the batch, calling torch, checking the rows. It is paid once a batch, so "
    "that larger batches share it.",
    "launches": "What an operator costs even where it has next to nothing to do: {operators} operators in the call, at "
    "least {operator_us:.2g} µs each, and views, which only rename memory. Also paid once a batch.",
    "copies": "Moving numbers without changing them: into the order that attention wants and back, and between number "
    "types. On a CPU nothing crosses a bus.",
    "compute": "Matrix products, attention, normalisation and the look-up of embeddings: the work itself, which grows "
    "with the tokens.",
    "pooling": "From one vector for each token to one row for each text, with a classifier's head.",
    "synchronisation": "Operators that hand a single number to Python. On a CPU there is nobody to wait for: an "
    "operator returns when its work is done.",
    "not_attributed": NOT_ATTRIBUTED,
}
MEANING_ON_CUDA: dict[Key, str] = {
    "tokenization": MEANING_ON_CPU["tokenization"],
    "python": "The card idles while Python lays out the batch, calls torch and checks the rows. It is paid once a "
    "batch; a second worker's batch fills the pause.",
    "launches": "The card idles while the host tells the driver what to run: {operators} operators in the call. "
    "Recorded forwards (CUDA graphs) launch them all at once.",
    "copies": "Ids on their way to the card and rows on their way back, while no kernel runs.",
    "compute": "At least one kernel runs on the card: the work itself, which grows with the tokens.",
    "pooling": "Kernels that make one row for each text; inside a recorded forward they cannot be told from compute.",
    "synchronisation": "The host waits for the card though the card does nothing: the time in which a wait begins and "
    "ends.",
    "not_attributed": NOT_ATTRIBUTED,
}
MEANING_ELSEWHERE: dict[Key, str] = MEANING_ON_CPU | {
    "python": "Between operators: laying out the batch, calling torch, checking the rows.",
    "launches": "What handing an operator to the device costs at least, {operators} operators in the call.",
    "compute": "Operators, as the host sees them: the device works by itself, and the profiler does not look into it.",
    "synchronisation": "Operators that wait until the device hands a number or rows to the host.",
}
MEANING_SIMULATED: dict[Key, str] = {
    "tokenization": "Splitting texts into words, which takes the place of a tokenizer here.",
    "python": "The call less what its law says: drawing rows, and a sleeping thread that wakes late.",
    "launches": "A simulated device launches nothing.",
    "copies": "A simulated device copies nothing.",
    "compute": "What the law of the simulated device says; the thread sleeps for so long.",
    "pooling": "A simulated device pools nothing.",
    "synchronisation": "A simulated device has nobody wait for it but the thread that sleeps.",
    "not_attributed": NOT_ATTRIBUTED,
}


def title(key: Key, kind: Kind) -> str:
    """What the page calls a line."""
    return (TITLES_ON_CUDA if kind == "cuda" else TITLES)[key]


def meaning(key: Key, kind: Kind, *, operators: int, operator_us: float) -> str:
    """What a line means, in a sentence."""
    sentences = {
        "cpu": MEANING_ON_CPU, "cuda": MEANING_ON_CUDA, "mps": MEANING_ELSEWHERE, "simulated": MEANING_SIMULATED,
    }[kind]  # fmt: skip
    return sentences[key].format(operators=operators, operator_us=operator_us)


NOT_SEEN = {
    "cpu": (
        "how long the card idles while Python and the driver launch kernels, and what CUDA graphs save of that",
        "copies over the bus, and whether they start from pinned memory",
        "hidden synchronisations that stall the host: on a CPU the operators are counted, but nobody waits",
        "the card's memory: free, and at its peak",
    ),
    "simulated": (
        "anything of a model: its vectors mean nothing and no torch operator runs",
        "copies, launches, pooling, synchronisation and memory: a law has none of these",
    ),
    "mps": ("kernels, launches and copies one by one: torch's profiler looks into CUDA devices alone",),
    "cuda": (),
}
"""What cannot be seen here, by kind of device."""
