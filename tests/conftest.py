"""Fixtures: real server processes, the real model, and data where it is at hand."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.browser import Browser, browser, missing
from tests.server import RunningServer, running_server

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"

Serve = Callable[..., RunningServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers for one test: `serve("--model", "fake://")`; they are stopped when it ends."""
    with ExitStack() as stack:
        yield lambda *flags, **options: stack.enter_context(running_server(*flags, **options))


@pytest.fixture(scope="session")
def fake_server() -> Iterator[RunningServer]:
    """One server on a simulated device that takes no time, shared by tests that leave it as it was."""
    with running_server("--model", "fake://?dim=8&base_ms=0&item_ms=0&max_tokens=16&fail_on=BAD&nan_on=NAN") as server:
        yield server


@pytest.fixture(scope="session")
def real_server() -> Iterator[RunningServer]:
    """One server with the bundled model, shared by tests that leave it as it was; in float32, whose vectors are the
    same on every machine; with time enough for one that is busy."""
    with running_server("--dtype", "float32", "--request-timeout-ms", "300000") as server:
        yield server


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A real browser, started once."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with browser() as chromium:
        yield chromium


@pytest.fixture
def page(chromium: Browser) -> Iterator[Browser]:
    """A real browser's tab, with nothing in it, of the usual size."""
    chromium.resize(1280, 900)
    chromium.prefer()
    yield chromium
    chromium.open("about:blank")
    chromium.complaints()
    chromium.asked()


@pytest.fixture
def client(fake_server: RunningServer) -> Iterator[httpx.Client]:
    with fake_server.client() as client:
        yield client


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder with real queries and sentence pairs; tests that need it are skipped where it is missing."""
    if not DATA.is_dir():
        pytest.skip(f"the data folder {DATA} is not here")
    return DATA
