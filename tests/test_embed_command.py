"""`python -m app embed`: every line its row, whatever breaks on the way."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from tests.conftest import Serve
from tests.server import ROOT, RunningServer, free_port

SLOW = "fake://?dim=8&base_ms=20&item_ms=0&fail_on=BAD"
TEXTS = [f"text number {i}" for i in range(2000)]


def command(url: str, source: Path, target: Path, *flags: str) -> list[str]:
    return [
        sys.executable, "-m", "app", "embed", "--url", url, "--input", str(source), "--output", str(target), *flags
    ]  # fmt: skip


def run(url: str, source: Path, target: Path, *flags: str, **env: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        command(url, source, target, *flags), cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={**os.environ, **env},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done


def expected(server: RunningServer, texts: list[str]) -> npt.NDArray[np.float32]:
    rows = [row for i in range(0, len(texts), 1000) for row in server.embed_all(texts[i : i + 1000])[0].json()]
    return np.array(rows, np.float32)


@pytest.fixture
def jsonl(tmp_path: Path) -> Path:
    """TEXTS as strings and objects by turns, with blank lines between."""
    path = tmp_path / "texts.jsonl"
    lines = [json.dumps(text if i % 2 else {"text": text, "id": i}) for i, text in enumerate(TEXTS)]
    path.write_text("\n\n".join(lines))
    return path


class CuttingProxy:
    """Passes bytes between a client and a server, and cuts each connection after so many bytes of answer."""

    def __init__(self, port: int, after_bytes: int) -> None:
        self._port = port
        self._after_bytes = after_bytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0

    @contextmanager
    def running(self) -> Iterator["CuttingProxy"]:
        thread = threading.Thread(target=self._accept)
        thread.start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            thread.join()

    def _accept(self) -> None:
        threads = []
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threads.append(threading.Thread(target=self._pass, args=[client]))
                threads[-1].start()
        for thread in threads:
            thread.join()

    def _pass(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            up = threading.Thread(target=self._pass_up, args=[client, server])
            up.start()
            if self._copy(server, client, self._after_bytes):
                self.cuts += 1
            for one in (client, server):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            up.join()

    def _pass_up(self, client: socket.socket, server: socket.socket) -> None:
        self._copy(client, server, sys.maxsize)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket, most: int) -> bool:
        with suppress(OSError):
            while data := source.recv(min(16_384, most)):
                target.sendall(data)
                most -= len(data)
                if most <= 0:
                    return True
        return False


def test_each_line_gets_the_vector_of_its_text(fake_server: RunningServer, jsonl: Path, tmp_path: Path) -> None:
    target = tmp_path / "vectors.npy"
    done = run(fake_server.url, jsonl, target)
    assert done.returncode == 0, done.stderr
    assert "2000 rows of 8 numbers" in done.stderr
    rows = np.load(target)
    assert rows.dtype == np.float32
    assert np.array_equal(rows, expected(fake_server, TEXTS))
    assert list(tmp_path.glob("*.progress*")) == []


def test_plain_text_and_other_fields_and_options(fake_server: RunningServer, tmp_path: Path) -> None:
    plain, other, target = tmp_path / "a.txt", tmp_path / "b.jsonl", tmp_path / "v.npy"
    plain.write_text('one text\n\n"two"\r\nthree\n')
    assert run(fake_server.url, plain, target).returncode == 0
    assert np.array_equal(np.load(target), expected(fake_server, ["one text", '"two"', "three"]))
    other.write_text('{"body": "one text"}\n')
    flags = ["--field", "body", "--dimensions", "3", "--no-normalize", "--overwrite"]
    assert run(fake_server.url, other, target, *flags).returncode == 0
    body = {"inputs": "one text", "dimensions": 3, "normalize": False}
    row = httpx.post(fake_server.url + "/embed", json=body).json()
    assert np.array_equal(np.load(target), np.array(row, np.float32))


def test_a_connection_that_breaks_again_and_again_loses_nothing(serve: Serve, jsonl: Path, tmp_path: Path) -> None:
    server, target = serve("--model", "fake://?dim=8&base_ms=0&item_ms=0"), tmp_path / "v.npy"
    with CuttingProxy(server.port, after_bytes=30_000).running() as proxy:
        done = run(proxy.url, jsonl, target)
        assert proxy.cuts >= 3
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(target), expected(server, TEXTS))


def test_a_service_that_comes_back_is_gone_on_with(serve: Serve, jsonl: Path, tmp_path: Path) -> None:
    server, target = serve("--model", SLOW, "--max-batch-items", "64"), tmp_path / "v.npy"
    with subprocess.Popen(command(server.url, jsonl, target), cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        until_rows(server, 500)
        assert server.stop() == 0
        again = [sys.executable, "-m", "app", "serve", "--port", str(server.port), "--model", SLOW]
        with subprocess.Popen(again, cwd=ROOT, stderr=subprocess.DEVNULL) as second:
            assert process.wait(60) == 0
            assert np.array_equal(np.load(target), expected(server, TEXTS))
            second.terminate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_goes_on_where_it_was(
    serve: Serve, fake_server: RunningServer, jsonl: Path, tmp_path: Path, number: signal.Signals
) -> None:
    server, target = serve("--model", SLOW, "--max-batch-items", "8"), tmp_path / "v.npy"
    with subprocess.Popen(command(server.url, jsonl, target), cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        until_rows(server, 1200)
        process.send_signal(number)
        _, said = process.communicate(timeout=20)
    progress = json.loads((tmp_path / "v.npy.progress").read_text())
    assert progress["rows_done"] > 300
    if number != signal.SIGKILL:
        assert process.returncode == 1
        assert f"{target} has {progress['rows_done']} of 2000 rows; the same command goes on" in said
    before = server.accepted()
    done = run(server.url, jsonl, target)
    assert done.returncode == 0, done.stderr
    assert server.accepted() - before == 2000 - progress["rows_done"]
    assert np.array_equal(np.load(target), expected(fake_server, TEXTS))


def until_rows(server: RunningServer, n: int) -> None:
    end = time.monotonic() + 60
    while server.metric('convoy_items_total{lane="bulk",outcome="answered"}') < n:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("bad", ["nope", '{"other": 1}', '""', '"BAD"', "3"])
def test_a_line_that_is_refused_ends_the_run_or_becomes_nan(
    fake_server: RunningServer, tmp_path: Path, bad: str
) -> None:
    source, target = tmp_path / "a.jsonl", tmp_path / "v.npy"
    source.write_text("\n".join(['"a"', "", bad, '"b"', bad]))
    done = run(fake_server.url, source, target)
    assert done.returncode == 1
    assert f"Line 3 of {source} cannot be embedded: " in done.stderr
    done = run(fake_server.url, source, target, "--on-error", "skip")
    assert done.returncode == 0, done.stderr
    assert "line 3 has a row of NaN: " in done.stderr
    assert "line 5 has a row of NaN: " in done.stderr
    rows = np.load(target)
    assert np.isnan(rows[[1, 3]]).all()
    assert np.array_equal(rows[[0, 2]], expected(fake_server, ["a", "b"]))


def test_a_first_line_that_is_refused_becomes_nan_too(fake_server: RunningServer, tmp_path: Path) -> None:
    source, target = tmp_path / "a.jsonl", tmp_path / "v.npy"
    source.write_text('""\n"b"\n')
    assert run(fake_server.url, source, target, "--on-error", "skip").returncode == 0
    rows = np.load(target)
    assert np.isnan(rows[0]).all()
    assert np.isfinite(rows[1]).all()


def begun(server: RunningServer, source: Path, target: Path) -> None:
    """A run that ended at its third line."""
    source.write_text('"a"\n"b"\nnope\n')
    assert run(server.url, source, target).returncode == 1


@pytest.mark.parametrize(
    ("change", "flags", "says"),
    [
        ("input", [], "was begun with another input"),
        ("", ["--dimensions", "3"], "was begun with another options"),
        ("progress", [], "cannot be read"),
        ("vectors", [], "is not what"),
    ],
)
def test_what_was_begun_otherwise_is_not_gone_on_with(
    fake_server: RunningServer, tmp_path: Path, change: str, flags: list[str], says: str
) -> None:
    source, target = tmp_path / "a.jsonl", tmp_path / "v.npy"
    begun(fake_server, source, target)
    if change == "input":
        source.write_text('"A"\n"b"\n"c"\n')
    elif change == "progress":
        (tmp_path / "v.npy.progress").write_text("{}")
    elif change == "vectors":
        np.save(target, np.zeros((3, 7), np.float32))
    done = run(fake_server.url, source, target, *flags)
    assert done.returncode == 2
    assert says in done.stderr
    assert "--overwrite" in done.stderr


def test_wrong_use_is_told_in_a_sentence(fake_server: RunningServer, tmp_path: Path) -> None:
    source, target = tmp_path / "a.jsonl", tmp_path / "v.npy"
    assert run(fake_server.url, source, target).returncode == 2
    source.write_text("\n\n")
    assert "holds no text" in run(fake_server.url, source, target).stderr
    source.write_text('"a"\n')
    assert run(fake_server.url, source, tmp_path / "v.csv").returncode == 2
    assert run("no url", source, target).returncode == 1
    assert run(fake_server.url, source, target, "--dimensions", "99").returncode == 1
    target.write_bytes(b"mine")
    done = run(fake_server.url, source, target)
    assert (done.returncode, target.read_bytes()) == (2, b"mine")


def test_a_service_that_is_not_there_is_waited_for_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('"a"\n')
    code = "import sys, app.ingest.run as r; r.FIRST_PAUSE_S = 0.01; from app.ingest.command import embed; "
    arguments = command(f"http://127.0.0.1:{free_port()}", source, tmp_path / "v.npy")[4:]
    done = subprocess.run(
        [sys.executable, "-c", code + f"sys.exit(embed({arguments!r}, None))"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
    assert "attempt 8 in turn" in done.stderr


def test_the_key_comes_from_the_environment_or_the_option(serve: Serve, tmp_path: Path) -> None:
    server = serve("--model", "fake://?dim=8", "--api-key", "secret")
    source, target = tmp_path / "a.jsonl", tmp_path / "v.npy"
    source.write_text('"a"\n')
    refused = run(server.url, source, target)
    assert refused.returncode == 1
    assert "401" in refused.stderr
    assert run(server.url, source, target, CONVOY_API_KEY="secret").returncode == 0
    assert run(server.url, source, target, "--overwrite", "--api-key", "secret").returncode == 0
