"""Tuning: the batcher's numbers for a model, as they are set, and as they were measured where they are left open."""

from app.batching import Policy, ServiceLaw
from app.settings import Settings
from app.vectorizers.base import ModelInfo

KNEE = 0.9
"""The part of the best throughput that batches reach while they are kept short for interactive requests."""
KNEE_WITH_A_SPARE = 0.95
"""The same where a query need not wait for a bulk batch, since a worker is kept for it: bulk may be longer."""
LEAST_SHORT_TOKENS = 128
LEAST_SHORT_PART = 0.5
"""A law that wants batches shorter than this, or than this part of the warm-up's, was learnt from disturbed ones."""


def policy_for(settings: Settings, model: ModelInfo) -> Policy:
    """The batcher's numbers: as set, and as measured where they are left open."""
    knee = KNEE_WITH_A_SPARE if model.workers > model.side_by_side > 0 else KNEE
    at_warmup = ServiceLaw(model.batch_base_s, model.batch_token_s).tokens_reaching(knee) if model.batch_token_s else 0
    return Policy(
        max_batch_items=settings.max_batch_items if settings.batching else 1,
        max_batch_tokens=model.max_batch_tokens,
        max_queue_items=settings.max_queue_items,
        max_queue_tokens=settings.max_queue_tokens,
        min_batch_tokens=min(model.max_input_tokens, model.max_batch_tokens),
        max_wait_s=settings.max_wait_ms / 1000,
        target_batch_s=settings.target_batch_ms / 1000,
        knee=knee,
        least_short_tokens=max(LEAST_SHORT_TOKENS, int(LEAST_SHORT_PART * at_warmup)),
        bulk_share=settings.bulk_share,
        watchdog_s=settings.watchdog_s or None,
    )
