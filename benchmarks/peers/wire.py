"""What goes over the wire to each kind of server: whole HTTP requests out, rows of vectors back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Wire:
    """The dialect of one kind of server; requests are bytes that can be sent as they are."""

    path: str
    texts_in: str = "inputs"
    """The name of the texts in the body."""
    always_list: bool = False
    """Whether one text travels as a list too."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What else the body has."""
    rows_in: str | None = None
    """The field of the answer that lists objects with an `embedding`; None where the answer is the matrix itself."""

    def one(self, text: str, headers: Mapping[str, str] | None = None) -> bytes:
        """A request for one text."""
        return self._request([text] if self.always_list else text, headers)

    def many(self, texts: Sequence[str], headers: Mapping[str, str] | None = None) -> bytes:
        """A request for a list of texts."""
        return self._request(list(texts), headers)

    def body(self, value: Any) -> bytes:
        """The body alone, of texts in this dialect's shape."""
        return orjson.dumps({self.texts_in: value, **self.extra})

    def rows(self, body: bytes) -> list[list[float]]:
        """The vectors of an answer."""
        answer = orjson.loads(body)
        rows = answer if self.rows_in is None else [item["embedding"] for item in answer[self.rows_in]]
        return [[float(number) for number in row] for row in rows]

    def _request(self, value: Any, headers: Mapping[str, str] | None) -> bytes:
        body = self.body(value)
        more = "".join(f"{name}: {text}\r\n" for name, text in (headers or {}).items())
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"{more}Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body
