"""How the page is set: its width, labels and paragraphs, and numbers with their units."""

import textwrap

WIDTH = 118
LABEL = 20


def row(label: str, words: str) -> list[str]:
    """A paragraph with a label on its left."""
    return wrap(words, f"  {label:<{LABEL}}", " " * (LABEL + 2))


def wrap(words: str, first: str = "  ", others: str | None = None) -> list[str]:
    """A paragraph whose first line begins with `first`, and the others with the same unless told otherwise."""
    return textwrap.wrap(
        words,
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if others is None else others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def count(number: int, thing: str) -> str:
    """As one says it: 1 text, 2 texts."""
    return f"{number} {thing}" + ("" if number == 1 else "s")


def gib(n_bytes: int | None) -> str:
    """Bytes in GiB; None is what could not be read."""
    return "an unknown amount" if n_bytes is None else f"{n_bytes / 2**30:.1f} GiB"
