"""The model behind Ray Serve's `@serve.batch`: POST / {"inputs": text or list of texts}."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray  # type: ignore[import-not-found]
from encoder import MAX_PENDING, Encoder, Options  # type: ignore[import-not-found]
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

options = Options.from_environment()


@serve.deployment(num_replicas=options.workers, max_ongoing_requests=MAX_PENDING, ray_actor_options={"num_cpus": 0})
class Embed:
    """Ray Serve makes the batches in each replica; a thread runs them, so that its event loop stays free."""

    def __init__(self, asked: Options) -> None:
        self.encoder = Encoder(asked)
        self.thread = ThreadPoolExecutor(1)

    @serve.batch(max_batch_size=options.max_batch_size, batch_wait_timeout_s=options.max_wait_ms / 1e3)  # type: ignore[untyped-decorator]
    async def embed(self, requests: list[Any]) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.thread, self.encoder.answers, requests)

    async def __call__(self, request: Request) -> Any:
        return Response(await self.embed((await request.json())["inputs"]), media_type="application/json")


if __name__ == "__main__":
    ray.init(include_dashboard=False, configure_logging=True, logging_level="error", log_to_driver=False, num_cpus=2)
    serve.start(http_options={"host": "127.0.0.1", "port": options.port})
    serve.run(Embed.bind(options), route_prefix="/")  # type: ignore[attr-defined]
    stop = signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()
    os._exit(0)
