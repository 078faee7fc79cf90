"""Choosing when to dispatch and which items travel: pure asyncio, no HTTP, no torch."""

from app.batching.batcher import Batcher
from app.batching.facts import Facts, NoFacts, Outcome
from app.batching.pool import Run
from app.batching.preparation import Prepare
from app.batching.ticket import Answer, Prepared

__all__ = ["Answer", "Batcher", "Facts", "NoFacts", "Outcome", "Prepare", "Prepared", "Run"]
