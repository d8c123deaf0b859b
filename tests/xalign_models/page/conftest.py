"""A headless Chromium, and the data in a page."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from typing import Any

import numpy as np
import pytest

SETTLED = """
const done = arguments[0];
let timer, frames;
const isDrawn = () => document.querySelector("main");
const frame = (count, then) => (frames = requestAnimationFrame(() => (count > 1 ? frame(count - 1, then) : then())));
const wait = () => {
  clearTimeout(timer);
  cancelAnimationFrame(frames);
  timer = setTimeout(() => frame(2, () => (isDrawn() ? leave() : wait())), 50);
};
const observer = new MutationObserver(wait);
const leave = () => { observer.disconnect(); done(); };
observer.observe(document, { attributes: true, characterData: true, childList: true, subtree: true });
wait();
"""
"""The view is there, and nothing has changed for 50 ms and two frames."""
FIRST_PAINT = """
const done = arguments[0];
new PerformanceObserver((list) => done(list.getEntries()[0].startTime)).observe({ type: "paint", buffered: true });
"""


def packed_in(page: str, name: str) -> bytes:
    """The bytes that a page holds in the element with this id."""
    return zlib.decompress(base64.b64decode(page.split(f'id="{name}">')[1].split("</script>", maxsplit=1)[0]))


def data_in(page: str) -> dict[str, Any]:
    """The board and all else that a page's scripts read at once."""
    return json.loads(packed_in(page, "data"))


def numbers_in(raw: bytes) -> np.ndarray:
    """Numbers as the page reads them: low bytes, then high bytes."""
    low, high = np.frombuffer(raw, np.uint8).reshape(2, -1).astype(np.uint16)
    return (low | high << 8).view(np.int16)


def settle(driver) -> None:
    """Wait until the page is drawn."""
    driver.execute_async_script(SETTLED)


def show(driver, address: str) -> None:
    """Change what stands behind # and wait until it is drawn."""
    settle(driver)  # before, nobody listens
    driver.execute_script("location.hash = arguments[0]", address)
    driver.execute_script("dispatchEvent(new HashChangeEvent('hashchange'))")  # if it was there already
    settle(driver)


def first_paint(driver) -> float:
    """Milliseconds from the start of the page's loading; waits for it."""
    return driver.execute_async_script(FIRST_PAINT)


def texts(driver, selector: str) -> list[str]:
    """The visible text of the elements."""
    return driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent.trim())", selector
    )


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """Selenium's driver, with its logs on."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "headless",
        "no-sandbox",
        "disable-gpu",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        f"user-data-dir={tmp_path_factory.mktemp('chromium') / 'profile'}",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    driver.set_script_timeout(120)
    driver.get("about:blank")  # in place of Chromium's own first page, which asks for files of its own
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium):
    """Opens a page: ``browser(path, width=..., height=..., dark=...)`` is the driver, with a new tab and empty logs."""
    first = chromium.current_window_handle

    def start(path, width=1300, height=900, dark=False):
        driver = chromium
        driver.switch_to.new_window("tab")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.get("about:blank")
        for log in ("browser", "performance"):  # of earlier pages
            driver.get_log(log)
        driver.get(path.as_uri())
        return driver

    yield start
    for handle in set(chromium.window_handles) - {first}:
        chromium.switch_to.window(handle)
        chromium.close()
    chromium.switch_to.window(first)
