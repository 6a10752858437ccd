"""Chromium without a screen, driven by selenium; nothing is fetched for it."""

import contextlib
import os
import shutil

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars",
)  # fmt: skip


def _missing():
    for name in ("chromium", "chromedriver"):
        if shutil.which(name) is None:
            return f"there is no {name} here (make browser)"
    return ""


@contextlib.contextmanager
def browser(folder, *, size="1280,860"):
    """A browser with an empty profile in a folder.

    Where it is missing, the test is skipped, or fails if PYLOG_REQUIRE names browser.
    """
    if missing := _missing():
        if "browser" in os.environ.get("PYLOG_REQUIRE", "").split(","):
            pytest.fail(missing)
        pytest.skip(missing)
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for option in (*_OPTIONS, f"--window-size={size}", f"--user-data-dir={folder}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()
