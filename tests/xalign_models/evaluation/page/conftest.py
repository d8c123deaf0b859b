"""A headless Chromium, and a board to look at."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture
def browser(tmp_path):
    """Opens a page: ``browser(path, width=..., height=..., dark=...)`` is selenium's driver, its logs on."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    drivers = []

    def start(path, width=1300, height=900, dark=False):
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
            f"user-data-dir={tmp_path / f'profile{len(drivers)}'}",
        ):
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
        drivers.append(driver)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.get("about:blank")
        driver.get_log("performance")  # Chromium's own first tab
        driver.get(path.as_uri())
        return driver

    yield start
    for driver in drivers:
        driver.quit()
