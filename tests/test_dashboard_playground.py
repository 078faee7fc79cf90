"""The dashboard's playground in a real browser: similarities and bills, by hand and by keyboard."""

import httpx
import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser import Browser
from tests.conftest import Serve
from tests.dashboard import shown
from tests.server import RunningServer

ANSWERED = "!document.getElementById('playground-answer').hidden"
FOCUS = "document.activeElement.id || document.activeElement.getAttribute('aria-label')"
CELLS = """
    return [...document.querySelectorAll('#similarities tbody tr')]
        .map((row) => [...row.cells].slice(1).map((cell) => +cell.textContent));
"""
SEGMENTS = ["parse", "tokenize", "queue", "forward", "respond"]


def test_texts_that_mean_alike_are_more_alike_than_others(page: Browser, real_server: RunningServer) -> None:
    with shown(page, real_server):
        texts = page.run("return [...document.querySelectorAll('#texts textarea')].map((one) => one.value)")
        assert len(texts) == 3
        page.run("document.getElementById('compare').click()")
        page.until(ANSWERED)
        found = np.array(page.run(CELLS))
        rows = np.array(httpx.post(real_server.url + "/embed", json={"inputs": texts}, timeout=60).json())
        assert found == pytest.approx(rows @ rows.T, abs=0.0051)
        assert found[0, 1] > found[0, 2] + 0.2, "the first two are about the same"
        assert page.text("playground-said") == f"Texts 1 and 2 are the most alike: {found[0, 1]:.2f}."


def test_the_bill_of_the_call_is_shown(page: Browser, real_server: RunningServer) -> None:
    with shown(page, real_server):
        page.run("document.getElementById('compare').click()")
        page.until(ANSWERED)
        bill = page.run("""
            return [...document.querySelectorAll('#call-bar .legend > div')].map((row) =>
                [row.querySelector('dt').textContent, parseFloat(row.querySelector('.figure').textContent)]);
        """)
        total_ms = float(page.text("call-note").split(" ms in the service")[0].replace(",", ""))
        assert [name for name, _ in bill] == SEGMENTS
        assert sum(ms for _, ms in bill) == pytest.approx(total_ms, rel=0.03, abs=0.2), "as rounded"
        assert "Its batch had 3 inputs" in page.text("call-note")


def test_the_keyboard_reaches_everything_in_sight(page: Browser, fake_server: RunningServer) -> None:
    with shown(page, fake_server):
        page.press(Keys.TAB, Keys.ENTER)
        page.until("location.hash === '#playground'")
        page.press(Keys.TAB)
        assert page.run(f"return {FOCUS}") == "text-1"
        page.press_with(Keys.CONTROL, "a")
        page.press("typed by hand", Keys.TAB, Keys.TAB, Keys.TAB, Keys.TAB, Keys.TAB, Keys.TAB)
        assert page.run(f"return {FOCUS}") == "compare"
        assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.press(Keys.ENTER)
        page.until(ANSWERED)
        assert "typed by hand" in page.text("similarities")
        page.press(Keys.TAB, Keys.ENTER)
        assert page.run(f"return {FOCUS}") == "text-4", "the new text is where one types next"
        page.press("a fourth")
        page.press_with(Keys.CONTROL, Keys.ENTER)
        page.until("document.querySelectorAll('#similarities tbody tr').length === 4")
        page.press(Keys.TAB, Keys.ENTER)
        assert page.run(f"return {FOCUS}") == "text-3", "the focus is not lost with the text"


def test_two_texts_are_the_fewest_and_twelve_the_most(page: Browser, fake_server: RunningServer) -> None:
    with shown(page, fake_server):
        count = "return document.querySelectorAll('#texts textarea').length"
        page.run("for (let i = 0; i < 20; i++) document.getElementById('add-text').click()")
        assert page.run(count) == 12
        page.run("for (let i = 0; i < 20; i++) document.querySelector('#texts button').click()")
        assert page.run(count) == 2
        labels = page.run("return [...document.querySelectorAll('#texts label')].map((one) => one.control.id)")
        assert labels == ["text-1", "text-2"]


def test_texts_are_shown_as_they_are_and_never_as_markup(page: Browser, fake_server: RunningServer) -> None:
    hostile = "<img src=x onerror=\"document.title = 'fooled'\">"
    with shown(page, fake_server):
        page.run("document.getElementById('text-1').value = arguments[0]", hostile)
        page.run("document.getElementById('compare').click()")
        page.until(ANSWERED)
        assert hostile in page.text("similarities")
        assert page.run("return document.querySelectorAll('main img').length") == 0


def test_a_refusal_is_told_in_the_words_of_the_service(page: Browser, fake_server: RunningServer) -> None:
    page.open(fake_server.url)
    page.run("document.getElementById('text-1').value = 'BAD'")
    page.run("document.getElementById('compare').click()")
    page.until("document.getElementById('compare').getAttribute('aria-disabled') === 'false'")
    refusal = httpx.post(fake_server.url + "/embed", json={"inputs": ["BAD"]}).json()["error"]
    assert page.text("playground-said").rpartition(" ")[0] == refusal.rpartition(" ")[0], "but for the request's id"
    assert page.run("return document.getElementById('playground-answer').hidden")
    assert all("500" in complaint for complaint in page.complaints())


def test_a_model_that_scores_has_nothing_to_compare(page: Browser, serve: Serve) -> None:
    server = serve("--model", "fake://?labels=2")
    with shown(page, server):
        page.until("!document.getElementById('playground-scores').hidden")
        assert page.run("return document.getElementById('playground-form').checkVisibility()") is False
        assert "/predict" in page.text("example")
