"""`Tab`: one page of the browser, with a session of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from console.console_world import SECRET, Served

PATIENCE = 90
"""Seconds; far beyond the longest wait on a busy machine."""
AXE = Path(__file__).parent / "axe" / "axe.min.js"
SERIOUS = {"serious", "critical"}


class Tab:
    """A page, and the errors that it has reported."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        page.set_default_timeout(PATIENCE * 1000)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._console)
        page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    @classmethod
    @contextlib.contextmanager
    def opened(cls, browser: Browser, width: int = 1280, scheme: str = "light") -> Iterator[Tab]:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",
            locale="en-US",
        )
        try:
            yield cls(context.new_page())
        finally:
            context.close()

    def enter(self, served: Served, place: str = "") -> None:
        """Open the address that the console prints, and then a place: "jobs/sales/epochs"."""
        self.page.goto(f"{served.url}/#token={SECRET}", wait_until="load")
        expect(self.page.locator("#link")).to_have_text("live")
        self.go(place)

    def go(self, place: str) -> None:
        self.page.evaluate("place => { location.hash = `/${place}` }", place)
        expect(self.page.locator("main h1").first).to_be_visible()

    def wide(self) -> int:
        """The pixels by which the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def axe(self) -> list[str]:
        """The serious findings of the accessibility checker."""
        self.page.evaluate(AXE.read_text())  # by the debugger, so that the page's policy stays as it is
        found: Any = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:4]]}"
            for one in found["violations"]
            if one["impact"] in SERIOUS
        ]

    def _console(self, message: ConsoleMessage) -> None:
        if (
            message.type == "error" and "Failed to load resource" not in message.text
        ):  # statuses are the tests' business
            self.problems.append(message.text)
