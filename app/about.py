"""What the service says of itself: for `/info`, and for the dashboard."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from app import __version__
from app.batching import LANES, ServiceLaw
from app.live import Now
from app.service import Service
from app.settings import Settings


def info(service: Service, settings: Settings) -> Mapping[str, Any]:
    """The model and the settings in effect."""
    loaded = service.model()
    model = asdict(loaded) if loaded is not None else None
    return {
        "version": __version__,
        "state": service.state,
        "model_id": model["name"] if model else settings.served_model_name or settings.model,
        "max_input_length": model["max_input_tokens"] if model else None,
        "model": model,
        "scheduler": _scheduler(service, settings),
        "settings": settings.public(),
    }


def _scheduler(service: Service, settings: Settings) -> Mapping[str, Any] | None:
    """What the batcher goes by now: limits that were measured, and the law learnt from the batches that ran."""
    batcher = service.batcher
    if batcher is None:
        return None
    law, short_tokens = batcher.law, batcher.short_batch_tokens
    return {
        "max_batch_tokens": batcher.max_batch_tokens,
        "target_batch_ms": settings.target_batch_ms or round(law.seconds(short_tokens) * 1e3, 3),
        "short_batch_tokens": short_tokens,
        "batch_base_ms": round(law.base_s * 1e3, 4),
        "batch_ms_per_1000_tokens": round(law.slope_s * 1e6, 4),
        "prediction_error": round(law.error, 4),
    }


def hello(service: Service, settings: Settings) -> Mapping[str, Any]:
    """What a reader of the dashboard must know to understand its figures."""
    model, batcher = service.model(), service.batcher
    return {
        "version": __version__,
        "state": service.state,
        "model": model.name if model else None,
        "kind": model.kind if model else None,
        "device": model.device if model else None,
        "dtype": model.dtype if model else None,
        "dimension": model.dimension if model else None,
        "workers": model.workers if model else None,
        "devices": len(batcher.busy_seconds()) if batcher else None,
        "max_batch_tokens": batcher.max_batch_tokens if batcher else None,
        "ceiling_tokens_per_s": (model.ceiling_tokens_per_s or None) if model else None,
        "simulated": bool(model.details.get("simulated")) if model else False,
        "batching": settings.batching,
        "slow_ms": settings.slow_request_ms,
    }


def now(service: Service) -> Now:
    """The service at this moment."""
    batcher = service.batcher
    return Now(
        service.state,
        {
            lane: {
                "items": batcher.waiting_items(lane) if batcher else 0,
                "tokens": batcher.waiting_tokens(lane) if batcher else 0,
            }
            for lane in LANES
        },
        lambda tokens: reach_of(batcher.law, tokens) if batcher else None,
    )


def reach_of(law: ServiceLaw, tokens: float) -> float | None:
    """The share of the device's best throughput that batches of so many tokens reach, by the law of service."""
    seconds = law.seconds(tokens)
    return law.slope_s * tokens / seconds if law.slope_s and seconds else None
