"""Content codings: bodies that come compressed, and answers that leave so where the client asks."""

import asyncio
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Protocol

from app.api.errors import BodyTooLarge, UnsupportedMediaType
from app.errors import InvalidInput

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE_BYTES = 65_536
"""What is inflated at a time: no more than this is held of which nobody has said whether it may come."""
SLICE_BYTES = 16_384
"""What is fed at a time: zlib copies what it has not used of it."""
AT_ONCE_BYTES = 65_536
"""More is inflated or compressed on another thread."""
TURN_PIECES = 8
"""Inflating this many pieces holds the event loop for a millisecond or so."""
WINDOW_LOG = 23
"""Zstandard's frames may refer back 8 MB, as RFC 8878 recommends; more would be the sender's to choose."""
LEVEL = 1
"""Of gzip and Zstandard alike: random digits do not become much smaller by more effort."""


class UnsupportedContentEncoding(UnsupportedMediaType):
    """The body is compressed in a way that is not read here."""

    def __init__(self, coding: bytes) -> None:
        super().__init__(
            f"The content encoding is {coding.decode('latin-1')!r}; send the body in one of gzip, deflate and zstd, or "
            "as it is."
        )
        self.headers = ((b"accept-encoding", b"gzip, deflate, zstd"),)


class Decoder(Protocol):
    """What inflates one member of a body, in the manner of the standard library's ZstdDecompressor."""

    @property
    def eof(self) -> bool:
        """Whether the member has ended."""

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes out of what was fed."""

    @property
    def unused_data(self) -> bytes:
        """What was fed beyond the end of the member."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """At most so many bytes of what this inflates to; the rest is had with further calls, with no data."""


class ZlibDecoder:
    """zlib's decompressor in that manner."""

    def __init__(self, wbits: int) -> None:
        self._decoder = zlib.decompressobj(wbits)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece = self._decoder.decompress(self._decoder.unconsumed_tail + data, max_length)
        self.needs_input = not self._decoder.unconsumed_tail and len(piece) < max_length
        return piece


def _gzip() -> Decoder:
    return ZlibDecoder(wbits=16 + zlib.MAX_WBITS)


def _deflate() -> Decoder:
    return ZlibDecoder(wbits=zlib.MAX_WBITS)


def _zstd() -> Decoder:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW_LOG})


CODINGS: dict[bytes, tuple[str, Callable[[], Decoder]]] = {
    b"gzip": ("gzip", _gzip),
    b"x-gzip": ("gzip", _gzip),
    b"deflate": ("deflate", _deflate),
    b"zstd": ("zstd", _zstd),
}


class Inflater:
    """Inflates a body bit by bit, as it comes in; it may consist of several members, one after another."""

    def __init__(self, coding: bytes) -> None:
        """Raises UnsupportedContentEncoding."""
        known = CODINGS.get(coding.strip().lower())
        if known is None:
            raise UnsupportedContentEncoding(coding)
        self._name, self._make = known
        self._decoder = self._make()

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What this part of the body inflates to, in pieces of up to PIECE_BYTES, of which some may be empty; raises
        InvalidInput where it is damaged."""
        for start in range(0, len(data), SLICE_BYTES):
            fed = data[start : start + SLICE_BYTES]
            while fed or not (self._decoder.eof or self._decoder.needs_input):
                if self._decoder.eof:
                    self._decoder = self._make()
                try:
                    piece = self._decoder.decompress(fed, PIECE_BYTES)
                except (zlib.error, zstd.ZstdError) as error:
                    raise InvalidInput(f"The body is not valid {self._name}: {error}.") from error
                fed = self._decoder.unused_data if self._decoder.eof else b""
                yield piece

    def end(self) -> None:
        """Raises InvalidInput unless the body was whole."""
        if not self._decoder.eof:
            raise InvalidInput(f"The body is not valid {self._name}: it ends too early.")


def inflater_for(coding: bytes) -> Inflater | None:
    """What reads this `Content-Encoding`; None where the body is as it is. Raises UnsupportedContentEncoding."""
    return None if coding.strip().lower() in (b"", b"identity") else Inflater(coding)


async def inflate(body: bytes, inflater: Inflater, limit: int) -> bytes:
    """The whole of a body; raises BodyTooLarge as soon as it is larger than `limit` bytes, and InvalidInput."""
    if len(body) > AT_ONCE_BYTES:
        return await asyncio.to_thread(lambda: b"".join(_bounded(body, inflater, limit)))
    pieces = []
    for n, piece in enumerate(_bounded(body, inflater, limit), 1):
        pieces.append(piece)
        if n % TURN_PIECES == 0:
            await asyncio.sleep(0)
    return b"".join(pieces)


def _bounded(body: bytes, inflater: Inflater, limit: int) -> Iterator[bytes]:
    size = 0
    for piece in inflater.pieces(body):
        size += len(piece)
        if size > limit:
            raise BodyTooLarge(limit)
        yield piece
    inflater.end()


@lru_cache(maxsize=256)
def coding_for(accepted: bytes) -> bytes | None:
    """The coding of an answer that an `Accept-Encoding` likes best, zstd before gzip; None for the plain answer."""
    weights = _weights(accepted)
    others = weights.get(b"*", 0.0)
    plain = weights.get(b"identity", 0.0)
    best = max((b"zstd", b"gzip"), key=lambda coding: weights.get(coding, others))
    weight = weights.get(best, others)
    return best if weight > 0 and weight >= plain else None


def _weights(accepted: bytes) -> dict[bytes, float]:
    """Each coding that a header names and its weight from 0 to 1; what cannot be read counts as refused."""
    weights = {}
    for entry in accepted.lower().split(b","):
        name, _, parameter = entry.partition(b";")
        key, _, value = parameter.partition(b"=")
        weight = 1.0
        if parameter.strip():
            try:
                weight = float(value) if key.strip() == b"q" else 1.0
            except ValueError:
                weight = 0.0
        weights[name.strip()] = weight if 0 <= weight <= 1 else 0.0
    return weights


async def compress(body: bytes, coding: bytes) -> bytes:
    """The body in this coding, one of those that `coding_for` names; a long one is compressed on another thread."""
    run = _to_zstd if coding == b"zstd" else _to_gzip
    return run(body) if len(body) <= AT_ONCE_BYTES else await asyncio.to_thread(run, body)


def _to_zstd(body: bytes) -> bytes:
    return zstd.compress(body, level=LEVEL)


def _to_gzip(body: bytes) -> bytes:
    return zlib.compress(body, level=LEVEL, wbits=16 + zlib.MAX_WBITS)
