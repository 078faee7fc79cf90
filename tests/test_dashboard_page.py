"""The dashboard in a real browser: that it shows the load it is under, and every other state it can be in."""

import asyncio
import shlex
import subprocess
import sys
from itertools import pairwise

import httpx
import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser import Browser, Scheme
from tests.conftest import Serve
from tests.dashboard import LIVE, load, low_contrasts, shown
from tests.server import ROOT, RunningServer

FAKE = "fake://?dim=8&base_ms=20&item_ms=5"
HIDE = """
    Object.defineProperty(document, 'hidden', {value: arguments[0], configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
"""
"""As the browser does when another tab is put before this one; without a window, none ever is."""


def test_it_says_that_the_device_is_the_limit_when_it_is(page: Browser, serve: Serve) -> None:
    server = serve("--model", FAKE, "--max-batch-items", "8")
    with load(server, clients=32), shown(page, server):
        page.until("document.querySelector('#held-back').dataset.by === 'device'")
        assert page.text("verdict").startswith("The device")
        assert page.run("return document.querySelector('#way .limit').dataset.station") == "device"
        assert page.run("return document.querySelectorAll('.badge:not([hidden])').length") == 1
        assert "the device is the limit" in page.text("sentence")
        page.until("document.getElementById('said').textContent.includes('the device is the limit')")


def test_it_says_that_the_clients_are_the_limit_when_they_are(page: Browser, serve: Serve) -> None:
    server = serve("--model", FAKE)
    with load(server, clients=1, pause_s=0.1), shown(page, server):
        page.until("document.querySelector('#held-back').dataset.by === 'clients'")
        assert page.text("verdict").startswith("The clients")
        assert page.run("return document.querySelector('#way .limit').dataset.station") == "clients"
        assert "more concurrency will raise throughput" in page.text("sentence")


def test_it_shows_the_load_it_is_under(page: Browser, serve: Serve) -> None:
    server = serve("--model", FAKE, "--max-batch-items", "8", "--slow-request-ms", "50")
    with load(server, clients=32), shown(page, server):
        page.until("parseFloat(document.querySelector('#requests-now b').textContent) > 0")
        for i in range(3):
            assert float(number_in(page, f"#latency-now .readout:nth-child({i + 1}) b")) > 20
        page.until(label("#sizes-chart") + ".includes('5–8: ')")
        assert "forward" in page.until(label("#bill-bar") + ".includes('forward') && " + label("#bill-bar"))
        assert "device" in page.run("return " + label("#waits-bar"))
        for chart in ("requests", "latency", "queue", "device", "tokens", "lag", "bill"):
            assert "between" in page.run("return " + label(f"#{chart}-chart")), chart
            assert page.run(f"return document.querySelector('#{chart}-chart path').getAttribute('d').length") > 0
        page.until("document.querySelectorAll('#slow-rows tr.is-slow').length === 10")
        assert "forward" in page.run("return " + label("#slow-rows tr"))
        assert page.text("about").startswith("fake")
        assert "simulated" in page.text("about")
        assert float(number_in(page, "#device-gauge text").rstrip("%")) > 50


def test_shows_any_second_of_the_last_two_minutes_to_the_keyboard(page: Browser, serve: Serve) -> None:
    server = serve("--model", FAKE)
    with load(server, clients=2), shown(page, server):
        page.until("+document.querySelector('#requests-now b').textContent > 0")
        page.run("document.getElementById('moment').focus()")
        assert page.text("moment-text") == "now"
        page.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
        page.until("document.getElementById('moment-text').textContent.endsWith(' s ago')")
        before = page.text("moment-text").split(",")[0]
        page.until("parseInt(document.getElementById('moment-text').textContent.split(', ')[1]) >= 4")
        assert page.text("moment-text").split(",")[0] == before, "the second stays while time goes on"
        assert page.run("return document.querySelectorAll('.pointer').length") == 8, "in each chart"
        page.press(Keys.END)
        page.until("document.getElementById('moment-text').textContent === 'now'")


def test_without_traffic_it_says_how_to_send_some(page: Browser, serve: Serve) -> None:
    server = serve("--model", FAKE)
    with shown(page, server):
        page.until("!document.getElementById('empty').hidden")
        assert page.text("verdict").startswith("Nothing")
        answer = subprocess.run(shlex.split(page.text("example")), capture_output=True, text=True, check=True)
        assert answer.stdout.startswith("[[")
        page.until("document.getElementById('empty').hidden")


def test_a_model_that_loads_is_not_taken_for_one_that_is_idle(page: Browser, serve: Serve) -> None:
    server = serve("--warmup", "quick", ready=False)
    with shown(page, server):
        assert page.text("verdict") == "The model is still loading."
        page.until("document.getElementById('verdict').textContent.startsWith('Nothing')", timeout_s=120)
        assert "all-MiniLM-L6-v2" in page.text("about")


def test_it_comes_back_when_the_service_does(page: Browser, serve: Serve) -> None:
    server = serve("--model", FAKE)
    page.open(server.url)
    page.until(LIVE)
    server.stop()
    page.until("!document.getElementById('lost').hidden && document.body.classList.contains('is-stale')")
    assert "Trying again in" in page.text("lost-text")
    command = [sys.executable, "-m", "app", "serve", "--port", str(server.port), "--model", FAKE]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as again:
        try:
            page.until(f"{LIVE} && document.getElementById('lost').hidden", timeout_s=120)
            assert not page.run("return document.body.classList.contains('is-stale')")
        finally:
            again.terminate()
    assert all("ERR_" in complaint for complaint in page.complaints()), "but for the network's, there are none"


def test_past_samples_that_come_again_take_the_place_of_those_kept(page: Browser, fake_server: RunningServer) -> None:
    with shown(page, fake_server):
        kept = page.run("""
            return import('/dashboard/history.js').then(({ History }) => {
                const history = new History();
                for (let at = 1; at <= 200; at++) history.add({at});
                history.reopen();
                for (let at = 190; at <= 205; at++) history.add({at});
                return history.samples.map((sample) => sample.at);
            });
        """)
        assert kept == list(range(205 - 119, 206)), "two minutes of them, each once"


def test_it_asks_for_the_key_and_keeps_it_in_the_tab(page: Browser, serve: Serve) -> None:
    server = serve("--model", FAKE, "--api-key", "secret")
    page.open(server.url)
    page.until("!document.getElementById('unlock').hidden && document.activeElement.id === 'key'")
    assert not page.run("return document.getElementById('held-back').checkVisibility()"), "there is nothing to show"
    page.press("guess", Keys.ENTER)
    page.until("document.getElementById('unlock-said').textContent.includes('does not take this key')")
    page.press("secret", Keys.ENTER)
    page.until(f"{LIVE} && document.getElementById('unlock').hidden")
    page.until("document.getElementById('held-back').checkVisibility()")
    page.run("document.getElementById('compare').click()")
    page.until("!document.getElementById('playground-answer').hidden")
    assert page.run("return [sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
    assert all("401" in complaint for complaint in page.complaints()), "but for the refusals, there are none"
    page.open(server.url)
    page.until(LIVE)
    page.run("sessionStorage.clear()")


def test_a_tab_that_is_not_seen_draws_nothing_and_keeps_the_figures(page: Browser, serve: Serve) -> None:
    server = serve("--model", FAKE)
    with load(server, clients=2), shown(page, server):
        page.until("+document.querySelector('#requests-now b').textContent > 0")
        page.run("""
            window.changes = 0;
            new MutationObserver((all) => { window.changes += all.length; })
                .observe(document.querySelector('main'), {subtree: true, childList: true, attributes: true});
        """)
        page.until("window.changes > 0")
        page.run(HIDE, True)
        page.run("requestAnimationFrame(() => { window.changes = 0; })")  # after what was due
        series = 'convoy_requests_total{route="/embed",status="200"}'
        answered = server.metric(series)
        asyncio.run(server.until(lambda: server.metric(series), answered + 100, timeout_s=60))
        assert page.run("return window.changes") == 0
        page.run(HIDE, False)
        page.until("window.changes > 0")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_in_either_scheme(page: Browser, serve: Serve, scheme: Scheme) -> None:
    server = serve("--model", FAKE, "--max-batch-items", "8", "--slow-request-ms", "50")
    page.prefer(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
    with load(server, clients=32), shown(page, server):
        page.run("document.getElementById('compare').click()")
        page.until("!document.getElementById('playground-answer').hidden")
        page.until("document.querySelectorAll('#slow-rows tr.is-slow').length > 0")
        page.run("document.getElementById('unlock').hidden = document.getElementById('lost').hidden = false")
        light = page.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((n) => n > 128)")
        assert light == (scheme == "light")
        assert low_contrasts(page) == []


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_it_fits_the_width_there_is(page: Browser, serve: Serve, width: int) -> None:
    server = serve("--model", FAKE, "--slow-request-ms", "1")
    page.resize(width, 800)
    with load(server, clients=8), shown(page, server):
        page.run("document.getElementById('compare').click()")
        page.until("!document.getElementById('playground-answer').hidden")
        page.until("document.querySelectorAll('#slow-rows tr').length > 0")
        assert page.run("return document.documentElement.scrollWidth") <= width


def test_its_parts_have_names_and_headings_follow_one_another(page: Browser, fake_server: RunningServer) -> None:
    with shown(page, fake_server):
        levels = page.run("return [...document.querySelectorAll('h1, h2, h3')].map((one) => +one.tagName[1])")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        assert page.run("return document.querySelectorAll('header, main, footer').length") == 3
        nameless = """
            return [...document.querySelectorAll('section, form, textarea, input, table, svg, [role=region]')]
                .filter((one) => one.id !== 'playground-form' && !one.closest('#slow-rows'))
                .filter((one) => !one.labels?.length && !one.getAttribute('aria-label'))
                .filter((one) => !one.closest('[role=region]'))
                .filter((one) => !document.getElementById(one.getAttribute('aria-labelledby'))?.textContent)
                .map((one) => one.outerHTML);
        """
        assert page.run(nameless) == []


def test_nothing_of_it_needs_the_internet(fake_server: RunningServer) -> None:
    files = sorted(file.name for file in (ROOT / "app" / "dashboard").iterdir())
    assert "index.html" in files
    for name in files:
        answer = httpx.get(f"{fake_server.url}/{'' if name == 'index.html' else f'dashboard/{name}'}")
        assert answer.status_code == 200, name
        assert "http://www.w3.org/" in answer.text or "://" not in answer.text.replace("{url}", ""), name


def label(chart: str) -> str:
    """JavaScript for what a chart says of itself to those who do not see it."""
    return f"document.querySelector('{chart} svg').getAttribute('aria-label')"


def number_in(page: Browser, selector: str) -> str:
    return str(page.run("return document.querySelector(arguments[0]).textContent", selector))
