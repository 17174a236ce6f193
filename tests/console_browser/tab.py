"""`Tab`: one page of the browser, with a session of its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

from console.console_world import SECRET, Served

PATIENCE = 30
"""Seconds; no wait of these tests is longer."""
QUIET = 0.15
"""Seconds without a new request, after which a page has asked for all that it shows."""
AXE = Path(__file__).parent / "axe" / "axe.min.js"
SERIOUS = {"serious", "critical"}
GO = """hash => new Promise(done => {
    const before = location.href;
    location.hash = hash;
    if (location.href === before) done();
    addEventListener("hashchange", () => setTimeout(done), {once: true});
})"""
OUTSIDE = """[...document.querySelectorAll("body *")]
    .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .filter((one, at, all) => !all.some(other => other !== one && one.contains(other)))
    .map(one => one.outerHTML.slice(0, 150))"""
CHECK = """patience => Promise.race([
    axe.run(document, {resultTypes: ["violations"]}),
    new Promise((_, fail) => setTimeout(() => fail(new Error("the checker has not ended in time")), patience)),
])"""


class Tab:
    """A page, and the errors that it has reported."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self._open: list[Request] = []
        self._asked = 0
        page.on("request", self._begun)
        page.on("requestfinished", self._ended)
        page.on("requestfailed", self._ended)
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
        self.page.evaluate(GO, f"#/{place}")
        expect(self.page.locator("main h1").first).to_be_visible()

    def settle(self) -> None:
        """Wait until the page of a job at rest has all that it shows: no request is under way, but the stream of events."""
        until, asked = time.monotonic() + PATIENCE, -1
        while self._open or asked != self._asked:
            assert time.monotonic() < until, f"still under way: {[one.url for one in self._open]}"
            asked = self._asked
            self.page.wait_for_timeout(QUIET * 1000)

    def wide(self) -> int:
        """The pixels by which the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def outside(self) -> list[str]:
        """Nothing if the page fits into the window; else by how much it does not, and the innermost elements beyond its edge."""
        wide = self.wide()
        return [f"{wide} px too wide", *map(str, self.page.evaluate(OUTSIDE))] if wide > 0 else []

    def axe(self) -> list[str]:
        """The serious findings of the accessibility checker."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text())  # by the debugger, so that the page's policy stays as it is
        found: Any = self.page.evaluate(CHECK, PATIENCE * 1000)
        return [
            f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:4]]}"
            for one in found["violations"]
            if one["impact"] in SERIOUS
        ]

    def _begun(self, request: Request) -> None:
        if request.resource_type != "eventsource":
            self._asked += 1
            self._open.append(request)

    def _ended(self, request: Request) -> None:
        if request in self._open:
            self._open.remove(request)

    def _console(self, message: ConsoleMessage) -> None:
        if (
            message.type == "error" and "Failed to load resource" not in message.text
        ):  # statuses are the tests' business
            self.problems.append(message.text)
