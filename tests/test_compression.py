"""Compressed bodies and answers: what is taken, what is refused, and that nobody fills the memory with a bomb."""

import gzip
import json
import sys
import zlib
from collections.abc import Callable

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.compression import PIECE_BYTES, Inflater, coding_for
from app.errors import InvalidInput
from tests.conftest import Serve
from tests.memory import Memory
from tests.server import RunningServer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}
INFLATE: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "zstd": zstd.decompress}


def post(server: RunningServer, body: bytes, coding: str, path: str = "/embed") -> httpx.Response:
    headers = {"content-type": "application/json", "content-encoding": coding}
    return httpx.post(server.url + path, content=body, headers=headers, timeout=60)


def zeros(coding: str) -> bytes:
    """1 GB of zeros, compressed."""
    megabyte = bytes(1 << 20)
    if coding == "zstd":
        return zstd.compress(megabyte) * 1024  # frame after frame
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31 if coding == "gzip" else 15)
    first, again = [deflater.compress(megabyte) + deflater.flush(zlib.Z_FULL_FLUSH) for _ in range(2)]
    return first + again * 1023


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_compressed_body_is_read_like_a_plain_one(fake_server: RunningServer, coding: str) -> None:
    body = json.dumps({"inputs": [f"text {i}" for i in range(2000)]}).encode()
    plain = post(fake_server, body, "identity")
    assert plain.status_code == 200
    answer = post(fake_server, COMPRESS[coding](body), coding)
    assert answer.json() == plain.json()


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "compress", "\xff"])
@pytest.mark.parametrize("path", ["/embed", "/embed/stream"])
def test_another_content_encoding_is_refused_with_those_that_are_taken(
    fake_server: RunningServer, coding: str, path: str
) -> None:
    headers = {"content-type": "application/json" if path == "/embed" else "text/plain"}
    headers_list = [*headers.items(), (b"content-encoding", coding.encode("latin-1"))]
    answer = httpx.post(fake_server.url + path, content=b"x", headers=headers_list)  # type: ignore[arg-type]
    assert answer.status_code == 415
    assert "gzip, deflate and zstd" in answer.json()["error"]
    assert answer.headers["accept-encoding"] == "gzip, deflate, zstd"


@pytest.mark.parametrize("coding", COMPRESS)
@pytest.mark.parametrize("damage", ["cut", "flipped", "trailing", "other", "empty"])
def test_a_damaged_body_is_refused(fake_server: RunningServer, coding: str, damage: str) -> None:
    whole = COMPRESS[coding](json.dumps({"inputs": "a text"}).encode())
    body = {
        "cut": whole[:-3],
        "flipped": b"\x00" + whole[1:],
        "trailing": whole + b"more",
        "other": b'{"inputs": "a text"}',
        "empty": b"",
    }[damage]
    answer = post(fake_server, body, coding)
    assert answer.status_code == 422
    assert f"not valid {coding}" in answer.json()["error"]


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_bomb_is_refused_and_never_held(fake_server: RunningServer, coding: str) -> None:
    bomb = zeros(coding)
    assert len(bomb) < 2_000_000
    memory = Memory(fake_server)
    post(fake_server, bomb, coding)  # whatever is loaded once
    memory.forget_peak()
    before = memory.now()
    for _ in range(3):
        answer = post(fake_server, bomb, coding)
        assert answer.status_code == 413
        assert "10485760 bytes" in answer.json()["error"]
    assert memory.peak() - before < 40_000_000


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_body_is_measured_inflated(serve: Serve, coding: str) -> None:
    server = serve("--model", "fake://?base_ms=0&item_ms=0", "--max-body-bytes", "100000")
    within = json.dumps({"inputs": "a" * 99_000}).encode()
    beyond = json.dumps({"inputs": "a" * 100_000}).encode()
    assert post(server, COMPRESS[coding](within), coding).status_code == 200
    assert post(server, COMPRESS[coding](beyond), coding).status_code == 413


@given(st.sampled_from(sorted(COMPRESS)), st.lists(st.binary(max_size=300_000), min_size=1, max_size=4), st.data())
def test_an_inflater_gives_back_what_was_compressed_however_it_comes(
    coding: str, members: list[bytes], data: st.DataObject
) -> None:
    body = b"".join([COMPRESS[coding](member) for member in members])
    cut = data.draw(st.integers(0, len(body)))
    inflater = Inflater(coding.encode())
    pieces = [piece for part in (body[:cut], body[cut:]) for piece in inflater.pieces(part)]
    inflater.end()
    assert b"".join(pieces) == b"".join(members)
    assert all(len(piece) <= PIECE_BYTES for piece in pieces)


def test_a_frame_that_wants_a_larger_window_than_is_held_is_refused() -> None:
    options: dict[int, int] = {zstd.CompressionParameter.window_log: 25, zstd.CompressionParameter.content_size_flag: 0}
    compressor = zstd.ZstdCompressor(options=options)
    frame = compressor.compress(bytes(1 << 16)) + compressor.flush()
    with pytest.raises(InvalidInput, match="not valid zstd"):
        list(Inflater(b"zstd").pieces(frame))


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0.5", "gzip"),
        ("gzip;q=0", None),
        ("gzip;q=0, *", "zstd"),
        ("*", "zstd"),
        ("*;q=0", None),
        ("zstd;q=0, gzip;q=0.001", "gzip"),
        ("identity, gzip;q=0.5", None),
        ("identity;q=0.5, gzip", "gzip"),
        ("identity;q=0, gzip;q=0.1", "gzip"),
        ("br, deflate", None),
        ("GZIP ; Q=0.7", "gzip"),
        ("gzip;q=x", None),
        ("gzip;q=nan", None),
        (",,", None),
        ("", None),
    ],
)
def test_the_client_chooses_the_coding_of_its_answer(accepted: str, chosen: str | None) -> None:
    assert coding_for(accepted.encode()) == (chosen.encode() if chosen else None)


@pytest.mark.parametrize("coding", INFLATE)
@pytest.mark.parametrize("path", ["/embed", "/v1/embeddings"])
def test_a_compressed_answer_holds_the_same_bytes(fake_server: RunningServer, coding: str, path: str) -> None:
    field = "inputs" if path == "/embed" else "input"
    texts = {field: [f"text {i}" for i in range(2000)]}
    with httpx.Client(base_url=fake_server.url) as client:
        plain = client.post(path, json=texts, headers={"accept-encoding": "identity"})
        with client.stream("POST", path, json=texts, headers={"accept-encoding": coding}) as answer:
            body = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == coding
    assert answer.headers["vary"] == plain.headers["vary"] == "accept-encoding"
    assert "content-encoding" not in plain.headers
    assert len(body) < 0.7 * len(plain.content)
    assert INFLATE[coding](body) == plain.content


def test_a_small_answer_stays_as_it_is(fake_server: RunningServer) -> None:
    answer = httpx.post(fake_server.url + "/embed", json={"inputs": "a"}, headers={"accept-encoding": "zstd, gzip"})
    assert "content-encoding" not in answer.headers
    assert "vary" not in answer.headers


def test_answers_are_compressed_from_the_size_that_is_set_or_never(serve: Serve) -> None:
    small, never = [serve("--model", "fake://", "--compress-min-bytes", size) for size in ("1024", "0")]
    asks = {"json": {"inputs": ["a"] * 100}, "headers": {"accept-encoding": "gzip"}}
    assert httpx.post(small.url + "/embed", **asks).headers["content-encoding"] == "gzip"  # type: ignore[arg-type]
    assert "content-encoding" not in httpx.post(never.url + "/embed", **asks).headers  # type: ignore[arg-type]
