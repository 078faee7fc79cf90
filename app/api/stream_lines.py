"""The lines of a stream, in groups: what each asks for, or what is wrong with it."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from app.api.compression import TURN_PIECES, Inflater
from app.api.errors import BodyTooLarge
from app.api.serving import LARGE_BODY
from app.api.upload import Upload
from app.errors import EmptyInput, InvalidInput

GROUP_LINES = 64
GROUP_BYTES = 65_536
"""Lines that are embedded together are so many and so long at most, where no single line is longer."""
BLANK = re.compile(rb"[ \t\r\n]*")
"""What JSON takes for white space."""
FIELDS = ("text", "inputs")
TURN = b""
"""Stands among the lines for a moment in which others should get the event loop."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line that was not blank: its number, its text, and the name of the field that this was in.

    `tag` is the client's `id` for it as `{"id": …}`, ready to be sent back; empty where it has none. `error` is what is
    wrong with a line that has no text to embed.
    """

    index: int
    text: str
    field: str
    tag: dict[str, Any]
    error: InvalidInput | None = None


class Lines:
    """Takes an upload apart, no faster than it is asked to."""

    def __init__(self, upload: Upload, inflater: Inflater | None, *, max_line_bytes: int, most: int) -> None:
        """A group holds `most` lines at most, and GROUP_LINES."""
        self._upload = upload
        self._inflater = inflater
        self._max_line_bytes = max_line_bytes
        self._most = min(GROUP_LINES, most)
        self._raw = self._split()
        self.count = 0
        """How many lines have been taken: the number of the next one."""
        self.ended = False
        """Whether there are no more."""
        self.problem: Exception | None = None
        """Why there are no more, where that is not the end of the body."""

    async def next_group(self) -> list[Line]:
        """A full group, or what there is where no more has come in yet, which may be nothing."""
        group: list[Line] = []
        size = 0
        try:
            while len(group) < self._most and size < GROUP_BYTES:
                raw = next(self._raw)
                if raw is None:
                    return group
                if not raw:  # TURN
                    await asyncio.sleep(0)
                    continue
                size += len(raw)
                group.append(await self._parsed(raw))
        except StopIteration:
            self.ended = True
        except (InvalidInput, BodyTooLarge) as error:
            self.ended, self.problem = True, error
        return group

    async def _parsed(self, raw: bytes) -> Line:
        index = self.count
        self.count += 1
        return parse(index, raw) if len(raw) <= LARGE_BODY else await asyncio.to_thread(parse, index, raw)

    def _split(self) -> Iterator[bytes | None]:
        """Each line that is not blank, TURN, or None where more has yet to come in.

        Raises BodyTooLarge for a line that is too long, and InvalidInput where the body cannot be inflated.
        """
        begun = bytearray()
        for piece in self._pieces():
            if not piece:
                yield piece
                continue
            start = self._skip(piece, 0, begun)
            while (end := piece.find(b"\n", start)) >= 0:
                begun += piece[start:end]
                self._check(len(begun))
                yield bytes(begun)
                begun.clear()
                start = self._skip(piece, end + 1, begun)
            begun += piece[start:]
            self._check(len(begun))
        if begun:
            yield bytes(begun)

    @staticmethod
    def _skip(piece: bytes, start: int, begun: bytearray) -> int:
        """Where the next line begins: behind blank lines, however many, and blanks before it."""
        if begun:
            return start
        blank = BLANK.match(piece, start)
        return blank.end() if blank else start

    def _check(self, line_bytes: int) -> None:
        if line_bytes > self._max_line_bytes:
            raise BodyTooLarge(self._max_line_bytes)

    def _pieces(self) -> Iterator[bytes | None]:
        """The body as it comes in, inflated; None where more has yet to come, TURN between many pieces."""
        while not self._upload.ended:
            part = self._upload.take()
            if part is None or self._inflater is None:
                yield part
                continue
            for n, piece in enumerate(self._inflater.pieces(part), 1):
                if piece:
                    yield piece
                if n % TURN_PIECES == 0:
                    yield TURN
        if self._inflater is not None:
            self._inflater.end()


def parse(index: int, raw: bytes) -> Line:
    """A line as the client sent it: a JSON string, or an object with the text in one of FIELDS."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return _bad(index, {}, InvalidInput(f"The line is not JSON: {error}."))
    if isinstance(value, str):
        return _line(index, value, "text", {})
    if not isinstance(value, dict):
        return _bad(index, {}, InvalidInput("The line is neither a string nor an object; send one of these."))
    tag: dict[str, Any] = {}
    if "id" in value:
        try:
            tag["id"] = orjson.Fragment(orjson.dumps(value["id"]))
        except orjson.JSONEncodeError:
            return _bad(index, {}, InvalidInput("id is nested too deeply to be sent back.", field="id"))
    given = [field for field in FIELDS if field in value]
    if len(given) != 1:
        what = "both are given" if given else "neither is given"
        return _bad(index, tag, InvalidInput(f"send either text or inputs; {what}."))
    text = value[given[0]]
    if not isinstance(text, str):
        problem = InvalidInput(f"{given[0]} is no string; each line of a stream holds one text.", field=given[0])
        return _bad(index, tag, problem)
    return _line(index, text, given[0], tag)


def _line(index: int, text: str, field: str, tag: dict[str, Any]) -> Line:
    if not text:
        return _bad(index, tag, EmptyInput(f"{field} is empty; send at least one character.", field=field))
    return Line(index, text, field, tag)


def _bad(index: int, tag: dict[str, Any], error: InvalidInput) -> Line:
    return Line(index, "", "", tag, error)
