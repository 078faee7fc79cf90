"""`python -m app doctor`: one page about this machine and this model, or the same as JSON."""

import sys
import textwrap
from typing import TYPE_CHECKING

import orjson

from app.errors import ConvoyError, StartFailed
from app.settings import Settings, read_settings

if TYPE_CHECKING:
    from app.doctor.report import Report

PROGRAM = "python -m app doctor"
DONE, WRONG_USE = 0, 2
"""Exit codes."""
MATTERING = (
    "model", "revision", "device", "dtype", "workers", "warmup", "batching", "max_batch_tokens", "max_batch_items",
)  # fmt: skip
"""Settings that change what is measured; the others are read, and mean nothing here."""


def doctor(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    if "-h" in arguments or "--help" in arguments:
        sys.stdout.write(usage())
        return DONE
    as_json = "--json" in arguments
    try:
        settings = read_settings([one for one in arguments if one != "--json"], program=PROGRAM)
        # torch takes seconds to import; a wrong flag is told before
        from app.doctor.examination import examine
        from app.doctor.page import page

        report = examine(settings)
    except StartFailed as error:
        return _wrong(str(error))
    except ConvoyError as error:
        return _wrong(f"The model could not be run: {error}")
    sys.stdout.write(to_json(report) if as_json else page(report))
    return DONE


def usage() -> str:
    """What `--help` prints."""
    lines = [
        f"usage: {PROGRAM} [--json] [options of serve]",
        "",
        "One page about this machine and this model: what was found, the bill of one call, what would help. Takes",
        "about half a minute with the bundled model, and wants the machine for itself.",
        "",
        "  --json  the same as JSON",
        "",
        "It takes every option of `python -m app serve`, as flags and in the environment. These change what is",
        "measured:",
        "",
    ]
    for name in MATTERING:
        words = f"  --{name.replace('_', '-')}  {Settings.model_fields[name].description}"
        lines += textwrap.wrap(words.replace("`", ""), 110, subsequent_indent="      ")
    return "\n".join(lines) + "\n"


def to_json(report: "Report") -> str:
    """The report as JSON, its keys as its fields are called."""
    return orjson.dumps(report, option=orjson.OPT_INDENT_2).decode() + "\n"


def _wrong(sentence: str) -> int:
    sys.stderr.write(sentence + "\n")
    return WRONG_USE
