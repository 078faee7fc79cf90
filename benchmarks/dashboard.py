"""Pictures of the dashboard, in its light and its dark colours, from the real service under a real load.

Single texts come from ever more clients at once, in three steps, and beside them a pipeline that posts a list now and
then. Browser, clients and service share this machine, so the figures shown are lower than what it can do.

usage: python -m benchmarks.dashboard [--seconds 125] [--clients 32] [--to docs] [-- flags of the service]
"""

import argparse
import asyncio
import random
from pathlib import Path

import aiohttp

from benchmarks.lanes import SOME_TEXTS
from benchmarks.load import free_port, server
from tests.browser import Browser, Scheme, browser, missing

WIDTH = 1280
SCALE = 1.5
STEPS = (16, 4, 1)
"""The first step has a sixteenth of the clients, the last one all."""
LIST_TEXTS = 24
LIST_EVERY_S = 3.0
PICTURES: dict[Scheme, str] = {"light": "dashboard.png", "dark": "dashboard-dark.png"}


class Load:
    """Clients that send one text after another until they are told to stop, and one that posts lists."""

    def __init__(self, session: aiohttp.ClientSession, stop: asyncio.Event) -> None:
        self._session = session
        self._stop = stop
        self._random = random.Random(1)

    async def singles(self) -> None:
        while not self._stop.is_set():
            await self._post(self._text())

    async def lists(self) -> None:
        while not self._stop.is_set():
            await self._post([self._text() for _ in range(LIST_TEXTS)])
            await asyncio.sleep(LIST_EVERY_S)

    def _text(self) -> str:
        return f"{self._random.choice(SOME_TEXTS)} {self._random.random():.6f}"

    async def _post(self, inputs: str | list[str]) -> None:
        async with self._session.post("/embed", json={"inputs": inputs}) as answer:
            answer.raise_for_status()
            await answer.read()


async def under_load(page: Browser, url: str, args: argparse.Namespace) -> None:
    stop = asyncio.Event()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector) as session, asyncio.TaskGroup() as group:
        load = Load(session, stop)
        group.create_task(load.lists())
        running = 0
        for part in STEPS:
            while running < max(1, args.clients // part):
                group.create_task(load.singles())
                running += 1
            await asyncio.sleep(args.seconds / len(STEPS))
        await asyncio.to_thread(take_pictures, page, args.to)
        stop.set()


def take_pictures(page: Browser, folder: Path) -> None:
    """What is above the list of slow requests, in both schemes."""
    page.until("document.querySelector('#link').dataset.state === 'live'")
    bottom = page.run("return Math.ceil(document.querySelector('.grid').getBoundingClientRect().bottom + scrollY) + 12")
    page.resize(WIDTH, bottom)
    for scheme, name in PICTURES.items():
        page.prefer(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
        page.picture(folder / name, SCALE)
        print(f"{folder / name}: {page.text('sentence')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=125, help="how long the load lasts; charts have two minutes")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--to", type=Path, default=Path("docs"), help="folder of the pictures")
    parser.add_argument("flags", nargs="*", help="flags of the service")
    args = parser.parse_args()
    if (reason := missing()) is not None:
        raise SystemExit(f"This needs a browser: {reason}.")
    port = free_port()
    arguments = ["-m", "app", "serve", "--port", str(port), *args.flags]
    with server(arguments, port, "/ready") as url, browser(WIDTH) as page:
        page.open(url)
        asyncio.run(under_load(page, url, args))


if __name__ == "__main__":
    main()
