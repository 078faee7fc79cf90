"""create_app and serve: where the parts meet, and the process around them."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import uvicorn
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from app import __version__
from app.api.edge import CLIENT_LEFT, OTHER, Edge, on_http_exception
from app.api.embed import embed_route
from app.api.routes import describe
from app.api.system import system_routes
from app.metrics import Metrics
from app.service import Service
from app.settings import Settings

log = structlog.get_logger(__name__)

KEEP_ALIVE_S = 75
"""Longer than the idle time of the usual load balancers (60 s), so that it is never us who close first."""
CLOSE_TIMEOUT_S = 5
"""For connections that are still sending or receiving after the drain."""


def create_app(settings: Settings) -> Edge:
    """The ASGI application; its lifespan owns the model, its threads and the batcher."""
    return build(settings)[0]


def build(settings: Settings) -> tuple[Edge, Service]:
    """Every part, wired: the edge in front of FastAPI, and the service behind both."""
    metrics = Metrics(__version__)
    service = Service(settings, metrics)
    app = FastAPIOffline(
        title="Convoy",
        version=__version__,
        description="Single-text requests in, full batches through one model, each caller's own vector out.",
        lifespan=service.running,
        docs_url="/docs",
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: on_http_exception},
    )

    routes = [
        embed_route(
            service.embedder,
            max_inputs=settings.max_inputs,
            max_body_bytes=settings.max_body_bytes,
            report_truncated=metrics.truncated,
        ),
        *system_routes(
            check_health=service.check_health,
            check_ready=service.check_ready,
            info=service.info,
            metrics=metrics.text,
            protect_metrics=settings.protect_metrics,
        ),
    ]
    describe(app, routes)
    metrics.expect_routes([(route.path, [*route.statuses, 405, CLIENT_LEFT]) for route in routes])
    metrics.expect_routes([(OTHER, [200, 401, 404, 405])])
    return Edge(app, routes=routes, api_key=settings.key(), report=metrics.request_ended), service


class Server(uvicorn.Server):
    """Uvicorn, with our own way to stop: drain first while the port still answers, then close, and exit with 0."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._stopping: asyncio.Task[None] | None = None
        self.exit_code = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announcement = asyncio.create_task(self._announce())

    async def _announce(self) -> None:
        await self._service.became_ready.wait()
        log.info(f"serving on {self.url} · documentation at {self.url}/docs")
        log.info(
            f"try it: curl {self.url}/embed -H 'content-type: application/json' "
            """-d '{"inputs": "Where is my card?"}'"""
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Drain, then exit; a second time, exit at once."""
        if self._stopping is not None:
            self.should_exit = self.force_exit = True
            return
        log.info("stopping: what was accepted is finished first")
        self._stopping = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        await self._service.drain()
        self.should_exit = True

    def fail(self, reason: str) -> None:
        """End the process with an error."""
        log.critical("the service cannot go on", reason=reason)
        self.exit_code = 1
        self.stop()

    @property
    def url(self) -> str:
        """Where to reach it, with the port it really has."""
        port = self.servers[0].sockets[0].getsockname()[1]
        host = "127.0.0.1" if self.config.host in ("0.0.0.0", "::") else self.config.host  # noqa: S104
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(settings: Settings) -> int:
    """Serve until told to stop; returns the exit code."""
    app, service = build(settings)
    server = Server(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
        ),
        service,
    )

    if settings.exit_on_dead_worker:
        service.on_fatal = server.fail
    server.run()
    return server.exit_code
