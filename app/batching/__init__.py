"""Choosing when to dispatch and which items travel: pure asyncio, no HTTP, no torch."""

from app.batching.batcher import Batcher, Run
from app.batching.facts import Facts, NoFacts, Outcome
from app.batching.queue import Reservation
from app.batching.ticket import Answer, Batch

__all__ = ["Answer", "Batch", "Batcher", "Facts", "NoFacts", "Outcome", "Reservation", "Run"]
