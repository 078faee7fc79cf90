"""Logging: one line an event, for people or for machines."""

import logging
import sys

import structlog

NOISY = ("uvicorn.error", "sentence_transformers", "httpx", "transformers")
"""Libraries that tell at `info` what only their own authors want to know."""

LEFT_OPEN = "ASGI callable returned without completing response."
"""How uvicorn sees an answer that is cut short on purpose, which is the only way to make it close the connection; who
cuts one says why."""


def configure_logging(log_format: str, log_level: str) -> None:
    """Send this project's events and every library's records to standard error in one format."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True) if log_format == "json" else _clock(),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=_render(log_format)))
    logging.basicConfig(handlers=[handler], level=log_level.upper(), force=True)
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg != LEFT_OPEN)
    for name in NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(log_level.upper())))


def _clock() -> structlog.typing.Processor:
    return structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)


def _render(log_format: str) -> list[structlog.typing.Processor]:
    strip = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if log_format == "json":
        return [strip, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    plain = structlog.dev.plain_traceback
    return [strip, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain, pad_event_to=0)]
