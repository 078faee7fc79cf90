"""Drives a client in another process, in the environment where it is installed."""

import json
import os
import select
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.clients.recipes import Recipe
from tests.server import ROOT

HERE = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv-clients"
WORKERS = {
    "python": [str(ENVIRONMENT / "bin" / "python"), str(HERE / "worker.py")],
    "js": ["node", str(HERE / "node" / "worker.mjs")],
}
QUIET = {
    "ANONYMIZED_TELEMETRY": "False",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
"""No client reports home or looks up prices while it is tested."""
CONFIGURES = ("OPENAI_", "HF_", "HUGGINGFACE", "OLLAMA_", "LITELLM_", "CHROMA_", "LANGSMITH_", "LANGCHAIN_")
"""Variables that configure a client begin so; those of whoever runs the tests are kept from it."""
ANSWER_TIMEOUT_S = 120


class Raised(Exception):
    """What a client raised: its class and what it says."""


class Driver:
    """One client's process."""

    def __init__(self, process: "subprocess.Popen[str]", recipe: Recipe) -> None:
        self._process = process
        self.recipe = recipe

    def version(self, package: str) -> str:
        return str(self._ask({"version": package}))

    def connect(self, url: str, key: str) -> None:
        """Run the recipe's set-up for a server."""
        self.run(self.recipe.setup_for(url, key))

    def run(self, source: str) -> None:
        self._ask({"setup": source})

    def one(self, text: str) -> list[float]:
        """The vector of a text; raises Raised."""
        vector: list[float] = self.call(self.recipe.one, "vector", text=text)
        return vector

    def many(self, texts: list[str]) -> list[list[float]]:
        """The vectors of texts; raises Raised."""
        vectors: list[list[float]] = self.call(self.recipe.many, "vectors", texts=texts)
        return vectors

    def call(self, source: str, result: str, **given: Any) -> Any:
        """What a statement assigns to a name; raises Raised."""
        return self._ask({"call": source, "result": result, "given": given})

    def _ask(self, request: Mapping[str, Any]) -> Any:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], ANSWER_TIMEOUT_S)
        assert ready, f"the client has not answered for {ANSWER_TIMEOUT_S} s"
        answer = json.loads(process.stdout.readline())
        if "error" in answer:
            raise Raised(f"{answer['kind']}: {answer['error']}")
        return answer["value"]


def environment() -> dict[str, str]:
    """The variables of a client's process."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(CONFIGURES)}
    vocabulary = next(ENVIRONMENT.glob("lib/*/site-packages/litellm/litellm_core_utils/tokenizers"))
    return {**own, **QUIET, "TIKTOKEN_CACHE_DIR": str(vocabulary)}


@contextmanager
def driving(recipe: Recipe) -> Iterator[Driver]:
    """Start a client's process; it ends when its input does."""
    process = subprocess.Popen(
        WORKERS[recipe.language], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    try:
        yield Driver(process, recipe)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
