"""Values on the command line: each function reads one, or says in a sentence what is wrong with it."""

import argparse
import math
import re
import shlex
import urllib.parse
from collections.abc import Callable
from typing import TypeVar

from loadtest.service import Target

NAME = re.compile(r"[A-Za-z0-9_.-]+")


Number = TypeVar("Number", int, float)


def _read(text: str, kind: Callable[[str], Number], what: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is no {what}") from None


def positive(text: str) -> float:
    """A finite number above 0."""
    value = not_negative(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"`{text}` is not above 0")
    return value


def not_negative(text: str) -> float:
    """A finite number of at least 0."""
    value = _read(text, float, "number")
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"`{text}` is no finite number of at least 0")
    return value


def count(text: str) -> int:
    """A whole number of at least 1."""
    value = _read(text, int, "whole number")
    if value < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is less than 1")
    return value


def share(text: str) -> float:
    """A number from 0 to 1."""
    if (value := not_negative(text)) > 1:
        raise argparse.ArgumentTypeError(f"`{text}` is above 1")
    return value


def url(text: str) -> str:
    """Where a service is, without a slash at the end."""
    try:
        parts = urllib.parse.urlsplit(text)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is none
        whole = False
    if not whole or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise argparse.ArgumentTypeError(f"`{text}` is no URL; it takes one like http://127.0.0.1:8000")
    return text.rstrip("/")


def target(text: str) -> Target:
    """A service from `NAME=URL`."""
    name, _, where = text.partition("=")
    if not NAME.fullmatch(name) or not where:
        raise argparse.ArgumentTypeError(
            f"`{text}` is not NAME=URL, with a name of letters, digits, dots, hyphens and underscores"
        )
    return Target(name, url(where))


def rates(text: str) -> tuple[str, list[float]]:
    """A service's name and its rates, from `NAME=R,R,…`."""
    name, _, values = text.partition("=")
    if not name or not values:
        raise argparse.ArgumentTypeError(f"`{text}` is not NAME=R,R,…")
    return name, [positive(value) for value in values.split(",")]


def flags(text: str) -> list[str]:
    """Flags in one string, as a shell would take them apart."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"`{text}` cannot be taken apart: {error}") from None
