"""Every page is readable: at 1280 and 400 px, light and dark, by the accessibility checker, and by keyboard alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from console.console_world import Served, showing
from console_browser.tab import Tab
from console_browser.worlds import quiet_root

pytestmark = pytest.mark.slow
MOVING = "document.getAnimations().length"
PLACES = {
    "overview": "",
    "job": "jobs/sales",
    "epochs": "jobs/sales/epochs",
    "epoch": "jobs/sales/epochs/3",
    "components": "jobs/sales/components",
    "component": "jobs/sales/components/by-shop",
    "key": "jobs/sales/components/by-shop/keys/%7B%22shop%22%3A%22shop-03%22%7D",
    "state": "jobs/sales/state",
    "letters": "jobs/squeamish/letters",
    "savepoints": "jobs/sales/savepoints",
    "runs": "jobs/sales/runs",
    "explain": "jobs/sales/explain",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with showing(quiet_root(tmp_path_factory.mktemp("reading"))) as found:
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_every_page_is_readable(served: Served, browser: Browser, width: int, scheme: str) -> None:
    with Tab.opened(browser, width, scheme) as tab:
        tab.enter(served)
        found = {}
        for name, place in PLACES.items():
            tab.go(place)
            tab.settle()
            found[name] = tab.outside() + tab.axe()
            for button in tab.page.get_by_role("button", name="Table", exact=True).all():
                button.click()
            found[f"{name}, as tables"] = tab.outside() + tab.axe()
        assert {name: problems for name, problems in found.items() if problems} == {}
        assert tab.problems == []


def test_control_the_checker_finds_what_is_wrong(served: Served, tab: Tab) -> None:
    tab.enter(served)
    tab.page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert any(one.startswith("button-name") for one in tab.axe())


def test_control_a_page_that_is_too_wide_is_noticed(served: Served, tab: Tab) -> None:
    tab.enter(served)
    tab.page.evaluate(
        "document.querySelector('main').style.width = '3000px'; document.querySelector('main').style.maxWidth = 'none'"
    )
    assert len(tab.outside()) > 1


def test_a_job_is_read_by_keyboard_alone(served: Served, tab: Tab) -> None:
    page = tab.page
    tab.enter(served)
    page.locator("body").press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    reach(tab, "sales")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("sales")
    expect(page.locator("main")).to_be_focused()
    reach(tab, "Epochs")
    page.keyboard.press("Enter")
    expect(page.locator("#epochs .bar-link").last).to_be_visible()
    newest = served.get("/api/jobs/sales/epochs?limit=2")["epochs"]
    reach(tab, f"Epoch {newest[0]['epoch']},")
    oldest = served.get("/api/jobs/sales/epochs?limit=120")["epochs"][-1]["epoch"]
    for key, epoch in (("Home", oldest), ("ArrowRight", oldest + 1), ("End", newest[0]["epoch"])):
        page.keyboard.press(key)
        expect(page.locator(f'.bar-link[aria-label^="Epoch {epoch},"]')).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(f'.bar-link[aria-label^="Epoch {newest[1]["epoch"]},"]')).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#epoch h2").first).to_have_text(f"Epoch {newest[1]['epoch']}")


def test_no_element_traps_the_focus(served: Served, tab: Tab) -> None:
    """Tab goes through the whole page and out of it."""
    tab.enter(served, "jobs/sales/state")
    expect(tab.page.get_by_role("table", name="Keys of")).to_be_visible()
    seen = [focused(tab)]
    for _ in range(200):
        tab.page.keyboard.press("Tab")
        seen.append(focused(tab))
        if seen[-1] == "body" and len(seen) > 10:
            break
    assert seen[-1] == "body", f"the focus stays: {seen[-5:]}"


def test_focus_can_be_seen(served: Served, tab: Tab) -> None:
    tab.enter(served, "jobs/sales")
    reach(tab, "State")
    outline = tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_nothing_moves_for_those_who_ask_for_it(served: Served, tab: Tab) -> None:
    tab.enter(served)
    assert tab.page.evaluate(MOVING) == 0
    tab.page.emulate_media(reduced_motion="no-preference")  # the control
    assert tab.page.evaluate(MOVING) == 1


def reach(tab: Tab, name: str) -> None:
    """Press Tab until the element with this name, or the beginning of it, has the focus."""
    for _ in range(120):
        tab.page.keyboard.press("Tab")
        if focused(tab).startswith(name):
            return
    raise AssertionError(f"{name} cannot be reached by Tab")


def focused(tab: Tab) -> str:
    return str(
        tab.page.evaluate(
            "(e => e === document.body ? 'body' : (e.getAttribute('aria-label') ?? e.textContent).trim())(document.activeElement)"
        )
    )
