"""Runs one client's recipe, in the environment that has the client: a line of JSON in, a line of JSON out.

`{"version": package}` asks what is installed; `{"setup": source}` runs the recipe up to its calls; `{"call": source,
"given": {...}, "result": name}` runs one call and asks for the name that it assigns. Answers are `{"value": ...}`, or
`{"kind": class, "error": text}` with what the client raised.
"""

import ast
import asyncio
import importlib.metadata
import inspect
import json
import os
import sys
from typing import Any, TextIO


async def run(source: str, names: dict[str, Any]) -> None:
    """Run statements, which may await."""
    outcome = eval(compile(source, "<recipe>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.isawaitable(outcome):
        await outcome


async def answer(request: dict[str, Any], names: dict[str, Any]) -> Any:
    """What is asked for; raises what the client raises."""
    if "version" in request:
        return importlib.metadata.version(request["version"])
    if "setup" in request:
        names.clear()
        return await run(request["setup"], names)
    names.update(request["given"])
    await run(request["call"], names)
    return names[request["result"]]


def plain(value: Any) -> Any:
    """An array, a number of one, or a client's own object, as JSON has it."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


async def serve(requests: TextIO, answers: TextIO) -> None:
    names: dict[str, Any] = {}
    while line := await asyncio.to_thread(requests.readline):
        try:
            answered = {"value": await answer(json.loads(line), names)}
        except Exception as error:
            answered = {"kind": type(error).__name__, "error": str(error)}
        print(json.dumps(answered, default=plain), file=answers, flush=True)


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what a library prints is no answer
        asyncio.run(serve(sys.stdin, answers))
