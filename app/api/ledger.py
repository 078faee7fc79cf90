"""The ledger: the bills of the requests answered, for the log, the metrics and the dashboard."""

import heapq
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import structlog

from app.api.bill import Shares
from app.api.call import Call
from app.intake import Bill

log = structlog.get_logger(__name__)

SLOWEST = 10
"""So many of the slowest are shown."""
SLOWEST_FOR_S = 60.0
"""For so long."""
MOST_WARNINGS = 5
"""So many slow requests are logged one by one between two looks at the ledger; the others are only counted."""
MOST_SHARES = 1024
"""So many bills are kept between two looks; of more, every second, fourth, … one, so that no look takes long."""


Observe = Callable[[float], None]


class Slow(NamedTuple):
    """One of the slowest requests: when it was answered, in seconds since 1970, and all that is known of it."""

    at: float
    total_s: float
    facts: dict[str, Any]


class Page(NamedTuple):
    """What has come since the last look: the segments of the requests answered, or of an even sample of them, and how
    many were slow; and the slowest of the last minute, the slowest first."""

    shares: Sequence[Shares]
    n_slow: int
    slowest: Sequence[Slow]


class Ledger:
    """Is told of each request answered; somebody must turn the page every second or so."""

    def __init__(self, *, slow_ms: float, observe_respond: Observe, log_all: bool = False) -> None:
        """`observe_respond` is told of each request how many seconds its answer took to make. A request that takes
        longer than `slow_ms` is logged as a warning, 0 for none; `log_all`: each other one is logged too, at
        `debug`."""
        self._slow_s = slow_ms / 1000 or math.inf
        self._log_all = log_all
        self._observe_respond = observe_respond
        self._shares: list[Shares] = []
        self._n = 0
        self._stride = 1
        self._n_slow = 0
        self._slowest: list[Slow] = []
        self._floor_s = 0.0
        """Who takes no longer than this is of no further interest."""

    def enter(self, call: Call, bill: Bill, shares: Shares) -> None:
        """A request is about to be answered."""
        self._observe_respond(shares.respond_s)
        self._n += 1
        if self._n % self._stride == 0:
            self._shares.append(shares)
            if len(self._shares) > MOST_SHARES:
                self._shares = self._shares[1::2]
                self._stride *= 2
        if shares.total_s > self._floor_s or self._log_all:
            self._look_at(call, bill, shares)

    def turn(self) -> Page:
        """What has come since the last time."""
        now = time.time()
        self._slowest = [one for one in self._slowest if one.at > now - SLOWEST_FOR_S]
        self._set_floor()
        page = Page(self._shares, self._n_slow, sorted(self._slowest, key=lambda one: -one.total_s))
        self._shares, self._n, self._stride = [], 0, 1
        if (unsaid := self._n_slow - MOST_WARNINGS) > 0:
            log.warning("more requests were slow", requests=unsaid)
        self._n_slow = 0
        return page

    def _look_at(self, call: Call, bill: Bill, shares: Shares) -> None:
        is_slow = shares.total_s > self._slow_s
        if not is_slow and not self._log_all and shares.total_s <= self._floor_s:
            return
        facts = facts_of(call, bill, shares)
        self._keep(Slow(time.time(), shares.total_s, facts))
        if is_slow:
            self._n_slow += 1
            if self._n_slow <= MOST_WARNINGS:
                log.warning("a request was slow", **facts)
        elif self._log_all:
            log.debug("answered", **facts)

    def _keep(self, slow: Slow) -> None:
        if len(self._slowest) >= SLOWEST and slow.total_s <= self._floor_of_slowest:
            return
        self._slowest = heapq.nlargest(SLOWEST, [*self._slowest, slow], key=lambda one: one.total_s)
        self._set_floor()

    @property
    def _floor_of_slowest(self) -> float:
        return self._slowest[-1].total_s if len(self._slowest) >= SLOWEST else 0.0

    def _set_floor(self) -> None:
        self._floor_s = min(self._slow_s, self._floor_of_slowest)


def facts_of(call: Call, bill: Bill, shares: Shares) -> dict[str, Any]:
    """Everything about one request, flat, with times in milliseconds."""
    way, batch = bill.way, bill.way.batch
    return {
        "request_id": call.request_id.decode(),
        "path": call.scope["path"],
        "lane": bill.lane,
        "inputs": bill.inputs,
        "tokens": bill.tokens,
        **{name.removesuffix("_s") + "_ms": round(seconds * 1e3, 3) for name, seconds in shares._asdict().items()},
        "waited_for": way.waited_for,
        "batch": batch.number,
        "batches": way.batches,
        "batch_items": batch.items,
        "batch_tokens": batch.tokens,
        "batch_full": round(batch.full, 3),
        "batch_padding": round(batch.padding, 3),
        "cached": bill.cached,
    }
