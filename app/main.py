"""create_app and serve: where the parts meet."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from app import __version__, about
from app.api.bill import Shares
from app.api.call import Call
from app.api.dashboard import dashboard_routes
from app.api.edge import CLIENT_LEFT, OTHER, Edge, on_http_exception
from app.api.embed import embed_route
from app.api.ledger import Ledger
from app.api.ollama import OLLAMA_ERROR, ollama_routes
from app.api.openai import OPENAI_ERROR, openai_routes
from app.api.rerank import RERANK_ERROR, rerank_routes
from app.api.routes import RouteTable, describe
from app.api.serving import Serving
from app.api.stream import stream_route
from app.api.system import system_routes
from app.api.tei import tei_info, tei_routes
from app.cards import Cards
from app.errors import StartFailed
from app.intake import Bill
from app.live import Live
from app.metrics import Metrics
from app.server import Server
from app.service import Service
from app.settings import Settings

if TYPE_CHECKING:
    from app.tracing import Tracing


def create_app(settings: Settings) -> tuple[Edge, Service]:
    """Every part, wired: the ASGI application (the edge, in front of FastAPI), and the service behind it, which the
    application's lifespan starts and ends."""
    log_all = settings.log_level == "debug"
    tracing = _tracing() if settings.tracing else None
    metrics = Metrics(__version__, log_batches=log_all, trace_batch=tracing.batch_finished if tracing else None)
    ledger = Ledger(slow_ms=settings.slow_request_ms, observe_respond=metrics.observe_respond, log_all=log_all)
    service = Service(settings, metrics, tracing.tag) if tracing else Service(settings, metrics)

    @asynccontextmanager
    async def running(_app: object) -> AsyncIterator[None]:
        async with service.running(), live.running():
            watching = asyncio.create_task(_watch_cards(service, metrics))
            yield
            watching.cancel()
        if tracing:
            await asyncio.to_thread(tracing.shut_down)

    def report_answered(call: Call, bill: Bill, shares: Shares) -> None:
        ledger.enter(call, bill, shares)
        if tracing:
            tracing.answered(call, bill, shares)

    app = FastAPIOffline(
        title="Convoy",
        version=__version__,
        description="Single-text requests in, full batches through one model, each caller's own vector out.",
        lifespan=running,
        docs_url="/docs",
        redoc_url=None,
        redirect_slashes=False,
    )
    serving = Serving(
        service,
        max_inputs=settings.max_inputs,
        max_body_bytes=settings.max_body_bytes,
        body_timeout_s=settings.request_timeout_ms / 1000,
        refuse_unknown_models=settings.unknown_model == "refuse",
        report_truncated=metrics.truncated,
        report_answered=report_answered if tracing else ledger.enter,
    )
    routes = [
        embed_route(serving),
        stream_route(serving),
        *tei_routes(serving),
        *openai_routes(serving, takes_ids=settings.takes_openai_ids),
        *ollama_routes(serving, __version__),
        *rerank_routes(serving),
        *system_routes(
            check_health=service.check_health,
            check_ready=service.check_ready,
            info=lambda: {
                **tei_info(service.model(), settings.public(), service.max_batch_tokens()),
                **about.info(service, settings),
            },
            metrics=metrics.text,
            protect_metrics=settings.protect_metrics,
        ),
    ]
    live = Live(
        metrics,
        ledger,
        work_routes=[route.path for route in routes if 504 in route.errors],
        now=partial(about.now, service),
        hello=partial(about.hello, service, settings),
    )
    if settings.dashboard:
        routes += dashboard_routes(live.events)
    describe(app, [route for route in routes if not route.path.startswith("/dashboard/")])
    metrics.expect_routes([(route.label or route.path, [*route.statuses, 405, CLIENT_LEFT]) for route in routes])
    metrics.expect_routes([(OTHER, [200, 401, 404, 405])])
    table = RouteTable(routes, {"/v1/": OPENAI_ERROR, "/v2/": RERANK_ERROR, "/api/": OLLAMA_ERROR})
    app.add_exception_handler(HTTPException, on_http_exception(table))
    edge = Edge(
        app,
        routes=table,
        api_key=settings.key(),
        compress_min_bytes=settings.compress_min_bytes,
        report=metrics.request_ended,
        trace=tracing.request if tracing else None,
    )
    return edge, service


async def _watch_cards(service: Service, metrics: Metrics) -> None:
    """Read the GPUs in use, if any are, as long as the service runs."""
    await service.became_ready.wait()
    model = service.model()
    if model is not None and (uuids := model.details.get("card_uuids")):
        await Cards(metrics.card_read).run(uuids)


def _tracing() -> "Tracing":
    try:
        from app.tracing import Tracing
    except ImportError as error:
        raise StartFailed(
            f"--tracing on needs the extra otel: pip install 'convoy-serving[otel]' ({error})."
        ) from error
    return Tracing()


def _example(service: Service) -> tuple[str, str]:
    """A path and a JSON body to try."""
    model = service.model()
    if model is None or model.kind == "embedding":
        return "/embed", '{"inputs": "Where is my card?"}'
    if len(model.labels) == 1:
        return "/rerank", '{"query": "Where is my card?", "texts": ["It was sent on Monday.", "A walk on the beach."]}'
    return "/predict", '{"inputs": "Where is my card?"}'


def serve(settings: Settings) -> int:
    """Serve until told to stop; returns the exit code."""
    app, service = create_app(settings)
    server = Server(
        app, service, settings.host, settings.port, asks_for_key=settings.key() is not None,
        example=lambda: _example(service),
    )  # fmt: skip
    if settings.exit_on_dead_worker:
        service.on_fatal = server.fail
    server.run()
    if service.has_running_threads:
        # A thread inside the model cannot be ended, and Python's own way out would pull the floor from under it.
        logging.shutdown()
        os._exit(server.exit_code)
    return server.exit_code
