"""What the edge costs: the whole service against a bare ASGI application and a plain FastAPI route, same
batcher, tokenizer and metrics of batches.

The device is simulated and takes no time, so that only Python is measured. One process each, 32 connections,
alternated in one run; `convoy again` is a second process of the service: its ratio to the first is the noise.

usage: python -m benchmarks.edge [--seconds 4] [--rounds 6] [--connections 32]
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any

import orjson
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from app.batching import Batcher, Policy
from app.items import prepare, run
from app.metrics import Metrics
from app.vectorizers.base import TextInput
from app.vectorizers.fake import FakeLaw, FakeVectorizer
from app.worker import Worker
from benchmarks.load import alternate, free_port, ratio, server, table

INSTANT = "fake://?base_ms=0&item_ms=0"


class Stage:
    """The same batcher, tokenizer thread, worker and simulated device that the service has."""

    def __init__(self) -> None:
        self.vectorizer = FakeVectorizer(FakeLaw.parse(INSTANT), name="fake", max_batch_tokens=0, max_batch_items=512)

    @asynccontextmanager
    async def running(self, _app: object = None) -> AsyncIterator[None]:
        async with Worker("worker") as worker, Worker("tokenizer") as tokenizer:
            batcher: Batcher[Any, Any] = Batcher(
                [partial(worker.call, run, self.vectorizer)],
                policy=Policy(
                    max_batch_items=512, max_batch_tokens=262_144, max_queue_items=8192, max_queue_tokens=4_194_304
                ),
                facts=Metrics("0"),
                prepare=partial(tokenizer.call, prepare, self.vectorizer),
            )
            async with batcher as self.batcher:
                yield

    async def embed(self, text: str) -> Any:
        return (await self.batcher.submit([TextInput(text)], [len(text)])).rows[0]


def bare_app() -> Any:
    """No framework, no validation, no headers, no metrics."""
    stage = Stage()
    life = stage.running()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                if message["type"] == "lifespan.startup":
                    await life.__aenter__()
                    await send({"type": "lifespan.startup.complete"})
                else:
                    await life.__aexit__(None, None, None)
                    await send({"type": "lifespan.shutdown.complete"})
                    return
        body = b"{}"
        if scope["method"] == "POST":
            body = (await receive())["body"]
            row = await stage.embed(orjson.loads(body)["inputs"])
            body = orjson.dumps([row], option=orjson.OPT_SERIALIZE_NUMPY)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


class PlainRequest(BaseModel):
    inputs: str


def plain_app() -> FastAPI:
    """What most people write first: a typed route, model in, list of floats out."""
    stage = Stage()
    app = FastAPI(lifespan=stage.running)

    @app.post("/embed")
    async def embed(request: PlainRequest) -> list[list[float]]:
        return [(await stage.embed(request.inputs)).tolist()]

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--run", choices=("bare", "plain"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        app = bare_app() if args.run == "bare" else plain_app()
        uvicorn.run(app, port=args.port, log_level="error", access_log=False, http="httptools", ws="none")
        return
    with ExitStack() as stack:
        runs = []
        for name in ("bare", "plain"):
            port = free_port()
            command = ["-m", "benchmarks.edge", "--run", name, "--port", str(port)]
            runs.append((name, stack.enter_context(server(command, port, "/docs")) + "/embed"))
        for name in ("convoy", "convoy again"):
            port = free_port()
            command = ["-m", "app", "serve", "--model", INSTANT, "--port", str(port), "--log-level", "error"]
            runs.append((name, stack.enter_context(server(command, port, "/ready")) + "/embed"))
        results = alternate(runs, args.connections, args.seconds, args.rounds)
    print(table(results))
    print()
    for over, under in (("convoy", "bare"), ("convoy", "plain"), ("convoy", "convoy again")):
        print(ratio(results, over, under))


if __name__ == "__main__":
    main()
