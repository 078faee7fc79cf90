"""The bill of a request: where its time went, what was applied, what was cut; and the headers that say so."""

from typing import Any, NamedTuple

from app.api.call import Call, Header
from app.batching.facts import NO_BATCH, Departure
from app.intake import Bill

BILL = (
    b"parse;dur=%.3f, tokenize;dur=%.3f, queue;dur=%.3f, forward;dur=%.3f, respond;dur=%.3f, total;dur=%.3f, "
    b'batch;desc="%b waited=%b%b%b"'
)
BATCH = b"number=%d items=%d tokens=%d full=%d%% padding=%d%%"
HEADERS: dict[str, Any] = {
    "X-Request-Id": {"schema": {"type": "string"}, "description": "The client's own, or a new one."},
    "Server-Timing": {"schema": {"type": "string"}, "description": "Where the time of this request went, in ms."},
    "X-Truncated-Inputs": {"schema": {"type": "integer"}, "description": "How many inputs were cut, where any were."},
    "X-Prompt-Name": {"schema": {"type": "string"}, "description": "The prompt put before each input, where one was."},
    "X-Compute-Type": {"schema": {"type": "string"}, "description": "`gpu`, `cpu` or `simulated`."},
    "X-Compute-Time": {"schema": {"type": "integer"}, "description": "Milliseconds in the service."},
    "X-Compute-Characters": {"schema": {"type": "integer"}, "description": "Characters of all inputs."},
    "X-Compute-Tokens": {"schema": {"type": "integer"}, "description": "Tokens the model read for this request."},
}


class Shares(NamedTuple):
    """The segments of a request's wall time, one after another, in seconds; they add up to `total_s`.

    `parse_s`: until it is read, understood and handed to the batcher. `tokenize_s`, `queue_s`, `forward_s`: as
    `Answer` has them. `respond_s`: from its last row until its answer can be sent.
    """

    total_s: float
    parse_s: float
    tokenize_s: float
    queue_s: float
    forward_s: float
    respond_s: float


def shares_of(call: Call, bill: Bill) -> Shares:
    """The segments up to now. Where nothing had to be computed, parsing and responding share the time."""
    total_s = call.elapsed_s
    way = bill.way
    parse_s = way.arrived - call.started if way.batches else call.parsed_s
    respond_s = total_s - parse_s - way.prepare_s - way.queue_s - way.run_s
    return Shares(total_s, parse_s, way.prepare_s, way.queue_s, way.run_s, respond_s)


def headers_for(bill: Bill, shares: Shares, compute_type: bytes) -> list[Header]:
    """The bill as `Server-Timing`, text-embeddings-inference's `x-compute-…`, the prompt that was applied, and how many
    inputs were cut. What `Server-Timing` has is not said twice: the server looks at each header byte by byte."""
    headers = [
        (b"server-timing", server_timing(bill, shares)),
        (b"x-compute-type", compute_type),
        (b"x-compute-time", b"%d" % (shares.total_s * 1e3)),
        (b"x-compute-characters", b"%d" % bill.characters),
        (b"x-compute-tokens", b"%d" % bill.tokens),
    ]
    if bill.prompt_name:
        headers.append((b"x-prompt-name", bill.prompt_name.encode("ascii", "backslashreplace")))
    if bill.truncated:
        headers.append((b"x-truncated-inputs", b"%d" % bill.truncated))
    return headers


def server_timing(bill: Bill, shares: Shares) -> bytes:
    """The bill of a request (W3C Server Timing): `parse`, `tokenize`, `queue`, `forward` and `respond` are segments of
    its wall time, one after another, and add up to `total`; milliseconds. `batch` describes the batch that carried the
    last of its items."""
    way = bill.way
    return BILL % (
        shares.parse_s * 1e3,
        shares.tokenize_s * 1e3,
        shares.queue_s * 1e3,
        shares.forward_s * 1e3,
        shares.respond_s * 1e3,
        shares.total_s * 1e3,
        described(way.batch),
        way.waited_for.encode(),
        b" batches=%d" % way.batches if way.batches > 1 else b"",
        b" cached=%d" % bill.cached if bill.cached else b"",
    )


_last_described: tuple[Departure, bytes] = NO_BATCH, b"number=0 items=0 tokens=0 full=0% padding=0%"


def described(batch: Departure) -> bytes:
    """A batch in words, made once for all its requests, who are answered one after another."""
    global _last_described
    if _last_described[0] is not batch:
        size = batch.number, batch.items, batch.tokens
        _last_described = batch, BATCH % (*size, round(batch.full * 100), round(batch.padding * 100))
    return _last_described[1]
