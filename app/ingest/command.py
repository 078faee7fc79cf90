"""`python -m app embed`: a file of texts in, a `.npy` file of their vectors out, through a running service."""

import argparse
import asyncio
import sys
from pathlib import Path

from app.ingest.corpus import Corpus
from app.ingest.vector_file import CannotResume

ALL_ROWS, NOT_ALL_ROWS, WRONG_USE = 0, 1, 2
"""Exit codes."""


def embed(arguments: list[str], api_key: str | None) -> int:
    """Run the command; `api_key` is used where no option gives one. Returns the exit code."""
    args = parser().parse_args(arguments)
    try:
        from app.ingest.run import EmbedRun, Stop
    except ImportError as error:
        return _say(f"This command needs {error.name}: pip install 'convoy-serving[client]'.", WRONG_USE)
    if args.output.suffix != ".npy":
        return _say(f"--output {args.output} must end in .npy, the format that is written.", WRONG_USE)
    corpus = Corpus(args.input, args.field)
    try:
        identity, n_rows = corpus.identity(), corpus.count()
    except OSError as error:
        return _say(f"--input {args.input} cannot be read: {error.strerror}.", WRONG_USE)
    if not n_rows:
        return _say(f"--input {args.input} holds no text.", WRONG_USE)
    run = EmbedRun(
        corpus,
        identity,
        n_rows,
        args.output,
        overwrite=args.overwrite,
        skip_refused=args.on_error == "skip",
        url=args.url.rstrip("/"),
        api_key=args.api_key or api_key,
        lane=args.lane,
        options=options_of(args),
    )
    try:
        return _say(asyncio.run(run.whole()), ALL_ROWS)
    except CannotResume as error:
        return _say(str(error), WRONG_USE)
    except Stop as error:
        return _say(str(error), NOT_ALL_ROWS)
    except OSError as error:
        return _say(f"--output {args.output} cannot be written: {error.strerror}.", NOT_ALL_ROWS)


def parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m app embed",
        description="Embed a file of texts, one a line, through a running service. An interrupted run is gone on with "
        "by the same command.",
    )
    parser.add_argument(
        "--input", type=Path, required=True, help="a JSON text or object a line; of .txt, a text a line"
    )
    parser.add_argument("--output", type=Path, required=True, help="the .npy file: float32, a row for each line")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the service (default: %(default)s)")
    parser.add_argument("--api-key", help="its key; better in the variable CONVOY_API_KEY, which others cannot see")
    parser.add_argument("--field", default="text", help="field of an object that holds its text (default: %(default)s)")
    parser.add_argument("--prompt-name", help="one of the model's prompts, put before each text")
    parser.add_argument("--input-type", help="what the texts are, `document` for instance")
    parser.add_argument("--dimensions", type=int, help="keep this many leading dimensions")
    parser.add_argument("--no-normalize", action="store_true", help="leave vectors at the length the model gives them")
    parser.add_argument("--no-truncate", action="store_true", help="refuse texts longer than the model reads")
    parser.add_argument("--lane", choices=("bulk", "interactive"), default="bulk", help="(default: %(default)s)")
    parser.add_argument(
        "--on-error", choices=("stop", "skip"), default="stop", help="what to do about a line that cannot be embedded: "
        "stop, or leave a row of NaN and list it (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="begin again, whatever is there")
    return parser


def options_of(args: argparse.Namespace) -> dict[str, str]:
    """What decides the vectors, as the service's query string has it."""
    options = {
        "prompt_name": args.prompt_name,
        "input_type": args.input_type,
        "dimensions": str(args.dimensions) if args.dimensions is not None else None,
        "normalize": "false" if args.no_normalize else None,
        "truncate": "false" if args.no_truncate else None,
    }
    return {name: value for name, value in options.items() if value is not None}


def _say(sentence: str, code: int) -> int:
    print(sentence, file=sys.stderr)
    return code
