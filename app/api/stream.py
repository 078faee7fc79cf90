"""`POST /embed/stream`: one text a line in, one vector a line out, in their order, for as many lines as there are.

Answers flow while the body still comes in. Whatever its length, a stream holds a few groups of lines: more is read
when the answers of one have gone out, so a client that does not read its answers is soon not read from either.
"""

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson
import structlog

from app.api.call import Call, CutShort, StreamReply, Write
from app.api.compression import Inflater, inflater_for
from app.api.encoders import AT_ONCE_FLOATS, as_base64
from app.api.errors import BodyTooSlow, UnsupportedMediaType, problem_of
from app.api.routes import Route
from app.api.serving import Serving, lane_of, named
from app.api.stream_lines import Line, Lines
from app.api.stream_query import Wanted, query_schema, read_query
from app.api.upload import Upload
from app.errors import DeadlineExceeded, InvalidInput, NotReady, QueueFull, ShuttingDown, WouldBeLate
from app.vectorizers.base import Matrix

log = structlog.get_logger(__name__)

NDJSON = b"application/x-ndjson"
CONTENT_TYPES = (
    b"",
    NDJSON,
    b"application/octet-stream",
    b"application/jsonl",
    b"application/json-lines",
    b"text/plain",
)
GROUPS_IN_FLIGHT = 3
"""One at the device, one behind it, one whose answers go out."""
LONGEST_PAUSE_S = 2.0
"""How long a group that was refused waits at most until it is tried again; less than a server that stops gives to the
connections that are left."""
TRIES = 3
"""How often a single line may miss its deadline before that is its answer."""
LAST_WORD_S = 1.0
"""How long a server that has no more time waits to tell that to a client."""

Outcome = Matrix | Exception
"""What became of a line: its row, or what went wrong with it."""

ANSWER: dict[str, Any] = {
    "description": "A line of JSON for each line that is not blank, in their order: `index`, the `id` if the line had "
    "one, and `embedding` or `base64`; or, for a line that cannot be served, `error` and `error_type`. A stream that "
    'ends before its end says why in a last line of this kind with `"final": true`, and the connection is closed.',
    "headers": {"X-Request-Id": {"schema": {"type": "string"}, "description": "The client's own, or a new one."}},
    "content": {NDJSON.decode(): {"schema": {"type": "string"}}},
}
EXAMPLES = {"two texts": {"value": '"Where is my card?"\n{"text": "My card has not arrived.", "id": 7}\n'}}
HEADERS = {
    "X-Lane": (
        {"type": "string", "enum": ["interactive", "bulk"]},
        "Which lane takes the texts; `bulk` by default.",
    ),
}


class Stream:
    """One stream: takes groups of lines, has a few of them embedded at a time, and writes the answers in order."""

    def __init__(self, serving: Serving, call: Call, inflater: Inflater | None, wanted: Wanted) -> None:
        self._serving = serving
        self._call = call
        self._inflater = inflater
        self._wanted = wanted
        self._flight: deque[tuple[list[Line], asyncio.Task[list[Outcome]]]] = deque()
        self._news = asyncio.Event()
        """Set when more has come in, and when a group is done."""
        self._next = 0
        """The number of the first line that is not answered yet."""

    async def run(self, write: Write) -> None:
        """Answer every line; raises CutShort where the stream ends before its end, which its last line says, and
        ClientLeft."""
        async with Upload(self._call, self._news) as upload:
            lines = Lines(
                upload,
                self._inflater,
                max_line_bytes=self._serving.max_body_bytes,
                most=self._serving.max_inputs,
            )
            try:
                await write(b"")  # the headers, for a client that waits for these before it sends
                await self._answer_all(lines, write)
            except (NotReady, ShuttingDown, BodyTooSlow) as error:
                await self._end_early(error, write)
            except asyncio.CancelledError:
                if not upload.client_left:  # it is the server whose time is over
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LAST_WORD_S):
                            await write(
                                self._last_line(ShuttingDown("The service has shut down; send the rest again."))
                            )
                raise
            finally:
                for _, task in self._flight:
                    task.cancel()

    async def _answer_all(self, lines: Lines, write: Write) -> None:
        while True:
            self._news.clear()
            await self._fill(lines)
            if self._flight and self._flight[0][1].done():
                group, task = self._flight.popleft()
                await self._write(group, task.result(), write)
            elif self._flight:
                await self._news.wait()
            elif lines.problem is not None:
                await self._end_early(lines.problem, write)
            elif lines.ended:
                return
            else:
                await self._more()

    async def _fill(self, lines: Lines) -> None:
        """Begin to embed what has come in, as far as there is room in flight."""
        while len(self._flight) < GROUPS_IN_FLIGHT and not lines.ended:
            group = await lines.next_group()
            if not group:
                return
            task = asyncio.create_task(self._embed(group))
            task.add_done_callback(self._done)
            self._flight.append((group, task))

    def _done(self, task: asyncio.Task[list[Outcome]]) -> None:
        """A group has ended, if only to find that the stream has."""
        if not task.cancelled():
            task.exception()  # it is seen here in any case, also where nobody comes to ask for the result
        self._news.set()

    async def _more(self) -> None:
        """Wait for more of the body, with nothing else to wait for."""
        stall_s = self._serving.body_timeout_s
        try:
            async with asyncio.timeout(stall_s):
                await self._news.wait()
        except TimeoutError:
            raise BodyTooSlow(
                f"Nothing came for {stall_s:g} s, nor the end of the body; send the rest again."
            ) from None

    # --- embedding --------------------------------------------------------------------------------------------------

    async def _embed(self, group: Sequence[Line]) -> list[Outcome]:
        """What becomes of each line; raises NotReady and ShuttingDown, which end the stream."""
        good = [line for line in group if line.error is None]
        rows = iter(await self._rows(good) if good else [])
        return [line.error if line.error is not None else next(rows) for line in group]

    async def _rows(self, lines: Sequence[Line], tries: int = TRIES) -> list[Outcome]:
        """The rows of these lines. Where they cannot be had together, each line is tried alone; where there is no room
        for them, they wait for some."""
        while True:
            try:
                rows, bill = await self._serving.embedder().embed([line.text for line in lines], self._wanted.options)
            except (QueueFull, WouldBeLate) as error:
                await asyncio.sleep(min(error.retry_after_s, LONGEST_PAUSE_S) * random.uniform(0.5, 1))
            except (NotReady, ShuttingDown):
                raise
            except DeadlineExceeded as error:
                if len(lines) == 1 and tries == 1:
                    return [error]
                if len(lines) == 1:
                    tries -= 1
                    continue
                half = len(lines) // 2
                return [*await self._rows(lines[:half]), *await self._rows(lines[half:])]
            except Exception as error:
                if len(lines) == 1:
                    return [error]
                alone = await asyncio.gather(*[self._rows([line]) for line in lines])
                return [outcome for outcomes in alone for outcome in outcomes]
            else:
                if bill.truncated:
                    self._serving.report_truncated(bill.truncated)
                return list(rows)

    # --- answering --------------------------------------------------------------------------------------------------

    async def _write(self, group: Sequence[Line], outcomes: Sequence[Outcome], write: Write) -> None:
        """Write the answers of a group, in parts, so that others get the event loop too."""
        part: list[bytes] = []
        floats = 0
        for line, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Exception):
                part.append(self._error_line(line, outcome))
            else:
                part.append(self._row_line(line, outcome))
                floats += outcome.size
            if floats >= AT_ONCE_FLOATS:
                await write(b"".join(part))
                await asyncio.sleep(0)
                part, floats = [], 0
        if part:
            await write(b"".join(part))
        self._next = group[-1].index + 1

    def _row_line(self, line: Line, row: Matrix) -> bytes:
        if self._wanted.as_base64:
            return _json({"index": line.index, **line.tag, "base64": as_base64(row.reshape(1, -1))[0]})
        return _json({"index": line.index, **line.tag, "embedding": row})

    def _error_line(self, line: Line, error: Exception) -> bytes:
        if isinstance(error, InvalidInput) and line.error is None:
            error = named(error, line.field, one=True)
        problem = problem_of(error, self._call.request_id)
        if problem.status == 500:
            request_id = self._call.request_id.decode()
            log.error("a line of a stream failed", request_id=request_id, index=line.index, exc_info=error)
        return _json({"index": line.index, **line.tag, "error": problem.message, "error_type": problem.error_type})

    async def _end_early(self, error: Exception, write: Write) -> None:
        """Say why the stream ends here."""
        await write(self._last_line(error))
        raise CutShort(problem_of(error, self._call.request_id).status)

    def _last_line(self, error: Exception) -> bytes:
        problem = problem_of(error, self._call.request_id)
        return _json({"index": self._next, "error": problem.message, "error_type": problem.error_type, "final": True})


def _json(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)


def stream_route(serving: Serving) -> Route:
    """The route `POST /embed/stream`. A line may be as long as a body elsewhere; a body of which nothing comes for as
    long as one may take elsewhere, while nothing of it is being answered, has ended."""

    async def embed_stream(call: Call) -> StreamReply:
        kind = call.content_type.partition(b";")[0].strip().lower()
        if kind not in CONTENT_TYPES:
            raise UnsupportedMediaType(
                f"The content type is {kind.decode('latin-1')!r}; send one JSON text a line as application/x-ndjson."
            )
        inflater = inflater_for(call.content_encoding)
        wanted = read_query(call.scope["query_string"], lane_of(call) or "bulk")
        try:
            serving.embedder().check_options(wanted.options)
        except InvalidInput as error:
            raise named(error, "inputs", one=True) from error
        return StreamReply(NDJSON, Stream(serving, call, inflater, wanted).run)

    return Route(
        path="/embed/stream",
        method="POST",
        endpoint=embed_stream,
        summary="Embed a stream of texts",
        description="One text a line, as a JSON string or as an object with `text` (or `inputs`) and, if you like, an "
        "`id` that comes back; one answer a line, in order, while the body still comes in. Read while you send: a "
        "client that does not read its answers is not read from either. Where there is too much to do, a stream waits.",
        answers={200: ANSWER},
        headers=HEADERS,
        query=lambda: query_schema(serving.model()),
        errors=(401, 408, 413, 415, 422, 424, 500, 503),
        body_schema=lambda: {"type": "string"},
        content_type="text/plain",  # one of CONTENT_TYPES that every tool can send
        body_required=False,
        examples=EXAMPLES,
    )
