"""Vectors as bytes on the wire: JSON numbers, base64, or the raw matrix."""

import asyncio
import base64
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import orjson

Matrix = npt.NDArray[np.float32]
"""Vectors, shape (n, dimension)."""

AT_ONCE_FLOATS = 16_000
"""Encoding this many floats holds the event loop for up to a millisecond or two; more are encoded in turns."""


async def in_turns(encode: Callable[[Matrix, int], bytes], rows: Matrix) -> bytes:
    """A JSON list made of the lists that `encode` makes of some rows at a time, so that others get the loop too; it is
    told the index of the first of them."""
    if rows.size <= AT_ONCE_FLOATS:
        return encode(rows, 0)
    step = max(1, AT_ONCE_FLOATS // rows.shape[1])
    parts = []
    for start in range(0, len(rows), step):
        parts.append(encode(rows[start : start + step], start)[1:-1])
        await asyncio.sleep(0)
    return b"[" + b",".join(parts) + b"]"


def as_json(rows: Matrix, first: int = 0) -> bytes:
    """`[[0.1,…],…]`, each float32 in its shortest exact form."""
    return orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)


def as_base64_json(rows: Matrix, first: int = 0) -> bytes:
    """`["AACAPw==",…]`: each row's little-endian float32 bytes in base64."""
    return orjson.dumps(as_base64(rows))


def as_base64(rows: Matrix) -> list[str]:
    """Each row's little-endian float32 bytes in base64."""
    return [base64.b64encode(row).decode() for row in little_endian(rows)]


def as_octets(rows: Matrix) -> bytes:
    """The matrix row by row, little-endian float32."""
    return little_endian(rows).tobytes()


def little_endian(rows: Matrix) -> Matrix:
    """The same numbers in the byte order of the wire: on nearly every machine the array itself."""
    return rows.astype("<f4", copy=False)
