"""The command line: `python -m app COMMAND`."""

import signal
import sys

from app import __version__

USAGE = """usage: python -m app COMMAND [options]

commands:
  serve     serve a model over HTTP; `python -m app serve --help` lists the options
  doctor    look at this machine and this model: where the time of a call goes, and what would help
  embed     embed a file of texts through a running service; `python -m app embed --help` lists the options
  version   print the version
"""


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit code: 2 for a wrong use, with a sentence that says what to change."""
    # In a container we may be process 1, which ignores SIGTERM until a handler is set; the server sets its own later.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    command, *rest = arguments or ["help"]
    if command in ("help", "-h", "--help"):
        print(USAGE, end="")
        return 0
    if command in ("version", "--version"):
        print(__version__)
        return 0
    if command == "embed":
        return run_embed(rest)
    if command == "doctor":
        return run_doctor(rest)
    if command != "serve":
        print(f"There is no command {command!r}.\n\n{USAGE}", end="", file=sys.stderr)
        return 2
    return run_server(rest)


def run_server(arguments: list[str]) -> int:
    """`serve`: read the settings, then serve."""
    from app.settings import read_settings, set_library_defaults

    set_library_defaults()
    from app.errors import StartFailed
    from app.logs import configure_logging
    from app.main import serve

    try:
        settings = read_settings(arguments)
        configure_logging(settings.log_format, settings.log_level)
        return serve(settings)
    except StartFailed as error:
        print(error, file=sys.stderr)
        return 2


def run_embed(arguments: list[str]) -> int:
    """`embed`: a file of texts through a running service."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))  # what was asked for is not done
    from app.ingest.command import embed
    from app.settings import key_in_environment

    return embed(arguments, key_in_environment())


def run_doctor(arguments: list[str]) -> int:
    """`doctor`: one page about this machine and this model."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))  # what was asked for is not done
    from app.settings import set_library_defaults

    set_library_defaults()
    from app.doctor.command import doctor
    from app.logs import configure_logging

    configure_logging("text", "warning")  # what is measured is on the page already
    return doctor(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
