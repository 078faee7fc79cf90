"""Choosing when to dispatch and which items travel: pure asyncio, no HTTP, no torch."""

from app.batching.batcher import Batcher
from app.batching.facts import LANES, NO_BATCH, Cause, Closed, Departure, Facts, LaneName, Outcome
from app.batching.law import ServiceLaw
from app.batching.policy import Policy
from app.batching.pool import Run
from app.batching.preparation import Prepare
from app.batching.ticket import Answer, Prepared

__all__ = [
    "LANES",
    "NO_BATCH",
    "Answer",
    "Batcher",
    "Cause",
    "Closed",
    "Departure",
    "Facts",
    "LaneName",
    "Outcome",
    "Policy",
    "Prepare",
    "Prepared",
    "Run",
    "ServiceLaw",
]
