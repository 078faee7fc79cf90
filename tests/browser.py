"""A real Chromium without a window, for tests and pictures of pages."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.wait import WebDriverWait

PATIENCE_S = 30.0
LOADED = "document.readyState === 'complete'"


def missing() -> str | None:
    """Why there is no browser here, None where there is one."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(absent)} (Debian's packages chromium, chromium-driver) not installed" if absent else None


class Browser:
    """One tab of it, what it has asked for and what it has complained of."""

    def __init__(self, driver: Chrome) -> None:
        self._driver = driver

    def open(self, url: str) -> None:
        self._driver.get(url)
        self.until(LOADED)

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a JavaScript function's body."""
        return self._driver.execute_script(script, *arguments)

    def until(self, condition: str, timeout_s: float = PATIENCE_S) -> Any:
        """Wait until a JavaScript expression is true; returns its value. Raises TimeoutException."""
        wait = WebDriverWait(self._driver, timeout_s, poll_frequency=0.05)
        return wait.until(lambda _: self.run(f"return {condition}"), f"not within {timeout_s:.0f} s: {condition}")

    def text(self, name: str) -> str:
        """The text of the element with this id."""
        return str(self.run("return document.getElementById(arguments[0]).textContent", name))

    def press(self, *keys: str) -> None:
        """Press keys one after another, wherever the focus is."""
        ActionChains(self._driver).send_keys(*keys).perform()

    def press_with(self, held: str, key: str) -> None:
        """Press a key while another is held."""
        ActionChains(self._driver).key_down(held).send_keys(key).key_up(held).perform()

    def prefer(self, **features: str) -> None:
        """What somebody has chosen for all pages: `prefers_color_scheme="dark"`."""
        media = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})

    def resize(self, width: int, height: int) -> None:
        """The size of the page's view in CSS pixels, however small."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.until(f"innerWidth === {width} && innerHeight === {height}")

    def picture(self, path: Path, scale: float = 1) -> None:
        """Write the view as a PNG, with `scale` pixels for a CSS pixel."""
        size = {"width": 0, "height": 0, "deviceScaleFactor": scale, "mobile": False}
        size["width"], size["height"] = self.run("return [innerWidth, innerHeight]")
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        if not self._driver.save_screenshot(str(path)):
            raise OSError(f"{path} could not be written")

    def complaints(self) -> Sequence[str]:
        """Errors in the console since the last time: exceptions, what could not be loaded, what a policy forbade."""
        return [entry["message"] for entry in self._driver.get_log("browser") if entry["level"] == "SEVERE"]  # type: ignore[no-untyped-call]

    def asked(self) -> Sequence[str]:
        """Hosts, with their ports, that were asked for anything since the last time."""
        hosts = set()
        for entry in self._driver.get_log("performance"):  # type: ignore[no-untyped-call]
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent":
                url = urlsplit(event["params"]["request"]["url"])
                hosts.add(url.netloc if url.scheme in ("http", "https", "ws", "wss") else "")
        return sorted(hosts - {""})


@contextmanager
def browser(width: int = 1280, height: int = 900) -> Iterator[Browser]:
    """Start one, with a profile of its own, and end it with the block."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options, Service(shutil.which("chromedriver")))
    try:
        found = Browser(driver)
        found.resize(width, height)
        yield found
    finally:
        driver.quit()


Scheme = Literal["light", "dark"]
