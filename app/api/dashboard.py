"""The dashboard at `/`: a page that is part of the package, and the stream of figures that feeds it."""

from collections.abc import AsyncIterator, Callable
from importlib.resources import files

from app.api.call import Call, Reply, StreamReply, Write
from app.api.routes import Route
from app.api.watch import Watchman
from app.errors import QueueFull

MOST_READERS = 64
RETRY_S = 10.0
EVENT_STREAM = b"text/event-stream"
TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]


def dashboard_routes(events: Callable[[], AsyncIterator[bytes]]) -> list[Route]:
    """The page and its files, which need no key, and its events, which do."""
    routes = [_events(events)]
    for file in sorted((files("app") / "dashboard").iterdir(), key=lambda one: one.name):
        content_type = TYPES.get(file.name.rpartition(".")[2])
        if content_type is not None:
            path = "/" if file.name == "index.html" else f"/dashboard/{file.name}"
            routes.append(_file(path, content_type, file.read_bytes()))
    return routes


def _file(path: str, content_type: bytes, body: bytes) -> Route:
    async def show(call: Call) -> Reply:
        return Reply(200, body, content_type, HEADERS)

    content = {content_type.decode().partition(";")[0]: {"schema": {"type": "string"}}}
    return Route(
        path, "GET", show, "The dashboard", "A page: what holds the service back, and the figures behind it.",
        {200: {"description": "The page.", "content": content}}, (), open=True, label="/dashboard",
    )  # fmt: skip


def _events(events: Callable[[], AsyncIterator[bytes]]) -> Route:
    readers = 0
    watchman = Watchman()

    async def stream(call: Call) -> StreamReply:
        if readers >= MOST_READERS:
            raise QueueFull(f"{MOST_READERS} read the dashboard's figures already.", retry_after_s=RETRY_S)

        async def run(write: Write) -> None:
            nonlocal readers
            readers += 1
            try:
                with watchman.over(call):
                    async for event in events():
                        await write(event)
            finally:
                readers -= 1

        return StreamReply(EVENT_STREAM, run)

    return Route(
        "/dashboard/events", "GET", stream, "The dashboard's figures", "", {200: {"description": "Events."}},
        (401, 429), label="/dashboard",
    )  # fmt: skip
