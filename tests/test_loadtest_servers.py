"""The load test against servers that refuse, answer wrongly, are no Convoy, or are not there."""

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from loadtest import run, theory
from tests.conftest import Serve

SLOW = "fake://?dim=8&base_ms=100&item_ms=2"


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forecasts are not what is looked at here."""
    monkeypatch.setattr(theory, "ARRIVALS", 10_000)


def test_a_server_that_sheds_is_reported_as_shedding(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve("--model", SLOW, "--batching", "off", "--request-timeout-ms", "400")
    arguments = ["--target", f"only={server.url}", "--rates", "only=40", "--seconds", "3", "--rounds", "1", "--users"]
    assert run.main([*arguments, "--slo-ms", "2000", "--out", str(tmp_path)]) == 0
    results = orjson.loads((tmp_path / "results.json").read_bytes())
    (level,) = results["targets"][0]["levels"]
    assert level["shed"] > level["answered"] > 0
    assert level["within_p99_ms"] is None, "a refusal is no answer: 99 of 100 were not answered within any time"
    assert results["targets"][0]["best"]["bound"] == "at_most"
    assert results["headline"] == "only answered 99% of requests within 2000 ms at no rate that was tried"
    assert re.search(r"\d+ shed", capsys.readouterr().out)


class Server(BaseHTTPRequestHandler):
    """Embeds by hashing; gives the wrong text's vector once it has answered so many."""

    protocol_version = "HTTP/1.1"
    right = 10**9
    answered = 0

    def do_POST(self) -> None:
        text = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"]
        type(self).answered += 1
        text += "" if self.answered <= self.right else " of somebody else"
        numbers = np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype=np.uint8).astype(float) - 127.5
        self._send(orjson.dumps([(numbers / np.linalg.norm(numbers)).tolist()]))

    def do_GET(self) -> None:
        self._send(b'{"scheduler": [1], "settings": 2, "model": "mine"}' if self.path == "/info" else b"}{ no metrics")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(right: int) -> Iterator[str]:
    """A server that goes wrong after so many answers; yields its URL."""
    handler = type("Handler", (Server,), {"right": right, "answered": 0})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_server_that_answers_wrongly_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(right=20) as url:
        arguments = ["--target", f"bad={url}", "--rates", "bad=60", "--seconds", "4", "--rounds", "1", "--users"]
        assert run.main([*arguments, "--protocol", "tei", "--out", str(tmp_path)]) == 1
    assert "The service `bad` answered wrongly: a text has another vector" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_a_server_that_is_no_convoy_is_tested_all_the_same(tmp_path: Path) -> None:
    with serving(right=10**9) as url:
        arguments = ["--target", f"plain={url}", "--rates", "plain=20", "--seconds", "2", "--rounds", "1", "--users"]
        assert run.main([*arguments, "--protocol", "tei", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("<img") == 3, "no plots of what this server does not tell"
    assert "an unnamed model" in page


def test_a_service_that_is_not_there_is_said_to_be_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--target",
        "gone=http://127.0.0.1:9",
        "--rates",
        "gone=20",
        "--seconds",
        "1",
        "--rounds",
        "1",
        "--users",
    ]
    assert run.main([*arguments, "--out", str(tmp_path)]) == 1
    assert "nothing answers at http://127.0.0.1:9/embed: " in capsys.readouterr().err


def test_a_service_that_does_not_start_is_said_to_have_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(["--model", "fake://?no=1", "--out", str(tmp_path)]) == 1
    assert "The service `off` ended with code" in capsys.readouterr().err
