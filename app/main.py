"""create_app and serve: where the parts meet."""

import logging
import os

from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from app import __version__
from app.api.edge import CLIENT_LEFT, OTHER, Edge, on_http_exception
from app.api.embed import embed_route
from app.api.routes import describe
from app.api.system import system_routes
from app.metrics import Metrics
from app.server import Server
from app.service import Service
from app.settings import Settings


def create_app(settings: Settings) -> tuple[Edge, Service]:
    """Every part, wired: the ASGI application (the edge, in front of FastAPI), and the service behind it, which the
    application's lifespan starts and ends."""
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
            body_timeout_s=settings.request_timeout_ms / 1000,
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


def serve(settings: Settings) -> int:
    """Serve until told to stop; returns the exit code."""
    app, service = create_app(settings)
    server = Server(app, service, settings.host, settings.port, asks_for_key=settings.key() is not None)
    if settings.exit_on_dead_worker:
        service.on_fatal = server.fail
    server.run()
    if service.has_running_threads:
        # A thread inside the model cannot be ended, and Python's own way out would pull the floor from under it.
        logging.shutdown()
        os._exit(server.exit_code)
    return server.exit_code
