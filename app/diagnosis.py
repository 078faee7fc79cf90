"""The diagnosis: what holds the service back, in one plain sentence from the numbers of the last seconds."""

from typing import Literal, NamedTuple

Limit = Literal["loading", "draining", "failed", "idle", "overload", "device", "clients", "host"]
"""What holds it back: not there yet, or no longer; nothing, as nobody asks; more than it can do is asked; the device
works all the time; the clients send too little at once; or Python cannot keep the device busy."""

BUSY = 0.85
"""A device that is busy for more of the time has no pause worth speaking of."""
SMALL_BATCHES = 0.5
"""Batches that reach less of the device's best throughput than this are small."""
SHED = 0.01
WAITING_MS = 2.0
"""Who waits for longer than this, while the device has nothing to do, waits for the host."""
LATE_MS = 10.0
"""A loop that is usually so late each second cannot keep a device busy."""


class Numbers(NamedTuple):
    """Of the last seconds: requests that ended and those of them that were shed or expired; the share of the time in
    which devices were busy; items in a mean batch, and the share of the best throughput that a batch of its size
    reaches, None where that is not known; milliseconds in the queue, in the mean; the loop's longest lag in a usual
    second."""

    requests: int
    late: int
    device_busy: float
    batch_items: float
    batch_reach: float | None
    queue_ms: float
    loop_lag_ms: float


class HeldBack(NamedTuple):
    """The short answer, and the sentence."""

    by: Limit
    text: str


def diagnose(state: str, numbers: Numbers) -> HeldBack:
    """What holds a service back that is in this state and has these numbers."""
    if state == "loading":
        return HeldBack("loading", "The model is still loading: nothing can be answered yet.")
    if state == "draining":
        return HeldBack("draining", "The service is stopping: it finishes what it has accepted, and takes nothing new.")
    if state == "failed":
        return HeldBack("failed", "The service is out of order and must be restarted; its log says why.")
    if not numbers.requests:
        return HeldBack("idle", "Nothing holds it back: no requests come at the moment.")
    busy = f"The device is busy {numbers.device_busy:.0%} of the time"
    if numbers.late > SHED * numbers.requests:
        share = numbers.late / numbers.requests
        return HeldBack(
            "overload",
            f"More is asked than can be done: {share:.0%} of the requests were refused or dropped because their "
            f"answers would have been late. {busy}. Add a replica or a device, or ask for less.",
        )
    if numbers.device_busy >= BUSY:
        return _busy(busy, numbers)
    if numbers.queue_ms > WAITING_MS and numbers.loop_lag_ms > LATE_MS:
        return HeldBack(
            "host",
            f"{busy}, and yet requests wait {numbers.queue_ms:.0f} ms: Python on the host cannot keep up (its event "
            f"loop is up to {numbers.loop_lag_ms:.0f} ms late). Give it more CPU, or run a second replica.",
        )
    return HeldBack(
        "clients",
        f"{busy}: clients send too little at once; more concurrency will raise throughput.",
    )


def _busy(busy: str, numbers: Numbers) -> HeldBack:
    items = f"{numbers.batch_items:.1f} inputs"
    if numbers.batch_reach is not None and numbers.batch_reach < SMALL_BATCHES:
        return HeldBack(
            "clients",
            f"{busy}, but with small batches: {items} each, at {numbers.batch_reach:.0%} of what it can do. Clients "
            "send too little at once; more concurrency will raise throughput.",
        )
    reach = "" if numbers.batch_reach is None else f", at {numbers.batch_reach:.0%} of what it can do"
    return HeldBack(
        "device",
        f"{busy}, with batches of {items}{reach}: the device is the limit. More clients will only wait longer; a "
        "faster device, a second one or a smaller model would raise throughput.",
    )
