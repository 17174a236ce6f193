"""A browser, and pages that must not report an error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from console_browser.chromium import arguments, chromium
from console_browser.tab import PATIENCE, Tab

expect.set_options(timeout=PATIENCE * 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for each module: while it is open, this thread has an event loop that runs."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=arguments(), timeout=PATIENCE * 1000)
        yield found
        found.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    """A page of 1280 px in light colours. It fails the test if a script fails or the content security policy is broken."""
    with Tab.opened(browser) as found:
        yield found
    assert found.problems == []
