"""The dashboard for tests: opened in a browser, under load, and looked at for what cannot be read."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.browser import Browser
from tests.server import RunningServer

LIVE = "document.getElementById('link').dataset.state === 'live'"
LEAST_CONTRAST = 4.5

CONTRASTS = """
const paint = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgb = (color) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = color;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
};
const luminance = (color) => {
    const linear = (n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb(color).map((n) => linear(n / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (node) => {
    for (let one = node; one; one = one.parentElement) {
        const color = getComputedStyle(one).backgroundColor;
        if (rgb(color)[3] === 255) return color;
    }
    return 'white';
};
const part = (text) => {
    const name = [...text.classList].find((one) => one.startsWith('on-'));
    const shape = name && text.closest('svg').querySelector('.of-' + name.slice(3));
    return shape ? getComputedStyle(shape).fill : behind(text);
};
const found = [];
for (const node of document.querySelectorAll('body *')) {
    const texts = [...node.childNodes].filter((one) => one.nodeType === 3 && one.data.trim());
    if (!texts.length && !node.matches('textarea, input[type=password]')) continue;
    if (!node.checkVisibility({visibilityProperty: true})) continue;
    if (node.closest('.unseen, .skip, script, style, noscript')) continue;
    const isDrawn = node.namespaceURI.endsWith('svg');
    const style = getComputedStyle(node);
    const [a, b] = [isDrawn ? style.fill : style.color, isDrawn ? part(node) : behind(node)].map(luminance);
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([contrast, node.textContent.slice(0, 40)]);
}
return found;
"""


@contextmanager
def shown(page: Browser, server: RunningServer) -> Iterator[None]:
    """Open the dashboard and wait until it has figures; when the block ends, nothing may have gone wrong in it, and
    nobody but the service may have been asked for anything."""
    page.open(server.url)
    page.until(f"{LIVE} && document.querySelector('#requests-now b') !== null")
    yield
    assert page.complaints() == []
    assert page.asked() == [f"127.0.0.1:{server.port}"]


@contextmanager
def load(server: RunningServer, *, clients: int, pause_s: float = 0) -> Iterator[None]:
    """So many clients, each sending one text after another, with a pause between, until the block ends."""
    stop = threading.Event()
    problems: list[BaseException] = []

    async def client(crowd: Any, number: int) -> None:
        sent = 0
        while not stop.is_set():
            answer = await crowd.embed(f"text {sent} of client {number}")
            assert answer.status_code == 200, answer.content
            sent += 1
            await asyncio.sleep(pause_s)

    async def drive() -> None:
        async with server.crowd() as crowd, asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(client(crowd, number))

    def run() -> None:
        try:
            asyncio.run(drive())
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not problems, problems


def low_contrasts(page: Browser) -> list[tuple[float, str]]:
    """Texts of less contrast to what is behind them than WCAG 2 asks for at AA, with the ratio."""
    found = page.run(CONTRASTS)
    assert len(found) > 100, "the page is full of texts"
    return [(round(contrast, 2), text) for contrast, text in found if contrast < LEAST_CONTRAST]
