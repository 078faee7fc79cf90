"""The policy: every number that decides what a batch may hold and who may wait."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Fixed while the batcher runs. A batch holds at most `max_batch_items` items and `max_batch_tokens` tokens, or one
    item that is larger.

    `max_wait_s`: an incomplete batch waits until its oldest item has waited that long. `min_batch_tokens`: running out
    of memory lowers the token budget no further. While interactive requests come, which they do for `presence_s` after
    each, no batch is to take longer than `target_batch_s`; where that is 0, none is to be larger than what reaches
    `knee` of the best throughput, by the law of service, or `least_short_tokens`. `bulk_share`: the part of the tokens
    that bulk gets however much is interactive. `watchdog_s`: a worker that is silent for longer counts as dead; None
    for never.
    """

    max_batch_items: int
    max_batch_tokens: int
    max_queue_items: int
    max_queue_tokens: int
    min_batch_tokens: int = 1
    max_wait_s: float = 0.0
    target_batch_s: float = 0.0
    knee: float = 0.9
    least_short_tokens: int = 1
    presence_s: float = 10.0
    bulk_share: float = 0.1
    watchdog_s: float | None = None
