"""Load for a running service: many users, each sending single texts to POST /embed and checking every answer.

usage: locust -f loadtest/locustfile.py --host http://127.0.0.1:8000        (then open http://localhost:8089)
       locust -f loadtest/locustfile.py --host http://127.0.0.1:8000 --headless -u 32 -r 32 -t 30s --only-summary

Start the service once with `--batching on` and once with `--batching off` to see what batching gains.
"""

import math
import random

from locust import FastHttpUser, task

OPENINGS = (
    "Where is",
    "What happened to",
    "How do I get",
    "Why was I charged for",
    "Please help me with",
    "Can I change",
)
THINGS = (
    "my card",
    "the refund",
    "a transfer abroad",
    "my PIN",
    "this payment",
    "the exchange rate",
    "a second account",
)
DETAILS = ("", "today", "since last week, and nobody answers", "although the app says that it was completed", "twice")


def text(rng: random.Random) -> str:
    """A short question, as people type them into a search box."""
    return " ".join(filter(None, (rng.choice(OPENINGS), rng.choice(THINGS), rng.choice(DETAILS)))) + "?"


class Searcher(FastHttpUser):
    """Sends one text after another, without a pause."""

    def on_start(self) -> None:
        self.rng = random.Random()

    @task
    def embed(self) -> None:
        with self.client.post("/embed", json={"inputs": text(self.rng)}, catch_response=True) as response:
            if response.status_code != 200:
                response.failure(f"status {response.status_code}")
                return
            rows = response.json()
            if len(rows) != 1 or not math.isclose(math.hypot(*rows[0]), 1, abs_tol=1e-3):
                response.failure("the answer is not one vector of unit length")
