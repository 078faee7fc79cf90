"""The headers of an answer: where its time went, what was applied, what was cut."""

from typing import Any

from app.api.call import Call
from app.intake import Bill

BILL = (
    b"parse;dur=%.3f, tokenize;dur=%.3f, queue;dur=%.3f, forward;dur=%.3f, respond;dur=%.3f, total;dur=%.3f, "
    b'batch;desc="items=%d tokens=%d%b%b"'
)
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


def headers_for(call: Call, bill: Bill, compute_type: bytes) -> list[tuple[bytes, bytes]]:
    """The bill as `Server-Timing`, text-embeddings-inference's `x-compute-…`, the prompt that was applied, and how many
    inputs were cut. What `Server-Timing` has is not said twice: the server looks at each header byte by byte."""
    total_s = call.elapsed_s
    headers = [
        (b"server-timing", server_timing(bill, call.parsed_s, total_s)),
        (b"x-compute-type", compute_type),
        (b"x-compute-time", b"%d" % (total_s * 1e3)),
        (b"x-compute-characters", b"%d" % bill.characters),
        (b"x-compute-tokens", b"%d" % bill.tokens),
    ]
    if bill.prompt_name:
        headers.append((b"x-prompt-name", bill.prompt_name.encode("ascii", "backslashreplace")))
    if bill.truncated:
        headers.append((b"x-truncated-inputs", b"%d" % bill.truncated))
    return headers


def server_timing(bill: Bill, parsed_s: float, total_s: float) -> bytes:
    """The bill of a request (W3C Server Timing): `parse`, `tokenize`, `queue`, `forward` and `respond` are segments of
    its wall time, one after another, and add up to `total`; milliseconds."""
    way = bill.way
    respond_s = total_s - parsed_s - way.prepare_s - way.queue_s - way.run_s
    return BILL % (
        parsed_s * 1e3,
        way.prepare_s * 1e3,
        way.queue_s * 1e3,
        way.run_s * 1e3,
        respond_s * 1e3,
        total_s * 1e3,
        way.batch_items,
        way.batch_tokens,
        b" batches=%d" % way.batches if way.batches > 1 else b"",
        b" cached=%d" % bill.cached if bill.cached else b"",
    )
