"""Admission: what may wait, in items and tokens, and what would wait too long to be worth accepting."""

import math
from typing import Any

from app.batching.batch import Limits
from app.batching.facts import LANES, LaneName
from app.batching.lane import TURN_TOKENS
from app.batching.lanes import Lanes
from app.batching.law import ServiceLaw
from app.batching.pool import Pool
from app.errors import InvalidInput, QueueFull, WouldBeLate

ANSWER_S = 0.005
"""So long before its deadline the last row of a request must be there: the answer has to be written and read."""
LEAST_RETRY_S = 1.0
"""Coming back sooner is not worth a client's while: `Retry-After` has whole seconds."""


class Admission:
    """Accepts whole requests, or refuses them before any work is done on them."""

    def __init__(self, lanes: Lanes, law: ServiceLaw, pool: Pool[Any], *, max_items: int, max_tokens: int) -> None:
        self._lanes = lanes
        self._law = law
        self._pool = pool
        self._max_items = max_items
        self._max_tokens = max_tokens

    def check(self, lane: LaneName, items: int, tokens: int, left_s: float, now: float, limits: Limits) -> None:
        """Refuse a request that brings so many items and tokens and whose deadline is `left_s` away, where it must be.

        Raises InvalidInput where it could never be accepted; QueueFull where there is no room; WouldBeLate where others
        wait before it and it is predicted to be answered after its deadline. An idle device refuses nobody on account
        of a prediction: only a batch that runs can mend a wrong one.
        """
        if tokens > self._max_tokens:
            raise InvalidInput(
                f"brings about {tokens} tokens; the limit is {self._max_tokens} in the whole queue "
                "(--max-queue-tokens); send it in parts"
            )
        if items > self._max_items - self._lanes.items:
            raise self._full("inputs", items, self._max_items - self._lanes.items, self._max_items, now, limits)
        if tokens > self._max_tokens - self._lanes.tokens:
            raise self._full("tokens", tokens, self._max_tokens - self._lanes.tokens, self._max_tokens, now, limits)
        if left_s == math.inf or not self._law.known:
            return
        if not self._lanes.items and self._pool.free_in_s(now) == 0:
            return
        if self.bound_s(lane, items, tokens, now, limits) + ANSWER_S <= left_s:
            return
        answered_in_s = self.predicted_s(lane, items, tokens, now, limits) + ANSWER_S
        if answered_in_s > left_s:
            raise WouldBeLate(
                f"The answer is predicted to take {math.ceil(answered_in_s * 1e3)} ms, because others wait, and the "
                f"deadline is {math.floor(left_s * 1e3)} ms away; try again when there is less to do.",
                retry_after_s=max(LEAST_RETRY_S, answered_in_s - left_s),
            )

    def _full(self, what: str, brings: int, room: int, limit: int, now: float, limits: Limits) -> QueueFull:
        drained_s = max([self.predicted_s(lane, 0, 0, now, limits) for lane in LANES])
        return QueueFull(
            f"The queue has room for {max(0, room)} more {what} and this request brings {brings} "
            f"(limit {limit}, --max-queue-{'items' if what == 'inputs' else what}); try again in a moment.",
            retry_after_s=max(LEAST_RETRY_S, drained_s),
        )

    def bound_s(self, lane: LaneName, items: int, tokens: int, now: float, limits: Limits) -> float:
        """In how many seconds at most `predicted_s` would say: as if all that waits, in either lane, came first, in
        batches that are full and all in each other's way. Costs less to find, and mostly is enough."""
        waiting = max((self._lanes.items + items) / limits.items, (self._lanes.tokens + tokens) / limits.tokens)
        batches = 1 + waiting / self._lanes.share(lane)
        return self._pool.free_in_s(now) + batches * self._law.most_seconds(limits.tokens) * self._pool.workers

    def predicted_s(self, name: LaneName, items: int, tokens: int, now: float, limits: Limits) -> float:
        """In how many seconds a request that comes now with this would be answered; with nothing: what waits in the
        lane.

        Requests of a lane take turns, so that of each that is there already, no more comes first than the new one
        brings itself, or a turn is worth.
        """
        lane = self._lanes[name]
        before_items, before_tokens = float(lane.items), float(lane.tokens)
        most_tokens = lane.requests * max(tokens, TURN_TOKENS)
        if tokens and before_tokens > most_tokens:
            before_items *= most_tokens / before_tokens
            before_tokens = float(most_tokens)
        share = self._lanes.share(name) if self._lanes.items > lane.items else 1.0
        all_tokens = (before_tokens + tokens) / share
        batches = max((before_items + items) / share / limits.items, all_tokens / limits.tokens)
        if not batches:
            return self._pool.free_in_s(now)
        full = math.ceil(batches) - 1
        each = all_tokens / max(1.0, batches)
        last_s = self._law.most_seconds(all_tokens - full * each)
        last_s *= self._pool.crowd if full else self._pool.slowdown
        return self._pool.free_in_s(now) + full * self._law.seconds(each) / self._pool.parallel + last_s
