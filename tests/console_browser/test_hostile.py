"""Names, keys, events and errors are text on every page: no markup, no script, and no page that grows sideways."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from console.console_world import Served, showing
from console_browser.tab import PATIENCE, Tab
from console_browser.worlds import HOSTILE, hostile_root

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with showing(hostile_root(tmp_path_factory.mktemp("hostile"))) as found:
        yield found


@pytest.mark.parametrize("width", [1280, 400])
def test_hostile_text_stays_text(served: Served, browser: Browser, width: int) -> None:
    (job,) = [one["job"] for one in served.get("/api/overview")["jobs"]]
    letters = served.get(f"/api/jobs/{job}/dead-letters")["dead_letters"]
    assert len(letters) == len(HOSTILE)
    places = [
        "",
        f"jobs/{job}",
        f"jobs/{job}/state",
        f"jobs/{job}/letters",
        *(f"jobs/{job}/letters?id={quote(one['id'], safe='')}" for one in letters),
        *(f"jobs/{job}/components/sums/keys/{quote(json.dumps({'card': text}), safe='')}" for text in HOSTILE),
        f"jobs/{quote(HOSTILE[0], safe='')}",
        f"jobs/{job}/components/{quote(HOSTILE[1], safe='')}",
        f"jobs/{job}/state?sql={quote(HOSTILE[2], safe='')}",
    ]
    with Tab.opened(browser, width) as tab:
        tab.enter(served)
        for place in places:
            tab.go(place)
            tab.settle()
            expect(tab.page.locator("main .stack").first).to_be_visible()
            assert (
                tab.page.evaluate("document.querySelectorAll('main img, main script, main svg[onload]').length") == 0
            ), place
            assert tab.page.title() != "owned", place
            assert tab.outside() == [], place
        assert tab.problems == []


def test_hostile_text_is_shown_as_it_is(served: Served, tab: Tab) -> None:
    (job,) = [one["job"] for one in served.get("/api/overview")["jobs"]]
    tab.enter(served, f"jobs/{job}/letters")
    table = tab.page.get_by_role("table", name="Dead letters, newest checkpoint first")
    for text in HOSTILE[:5]:
        expect(table).to_contain_text(f"cannot process {text}")


def test_control_markup_that_is_parsed_is_noticed(served: Served, tab: Tab) -> None:
    """The policy stops inline handlers; the page reports it, and the tests see it."""
    tab.enter(served)
    tab.page.evaluate("text => { document.querySelector('main').innerHTML = text }", HOSTILE[0])
    tab.page.wait_for_function("document.querySelectorAll('main img').length === 1")
    until = time.monotonic() + PATIENCE
    while not tab.problems and time.monotonic() < until:
        tab.page.wait_for_timeout(20)  # lets the report arrive
    assert any("Content Security Policy" in one for one in tab.problems)
    assert tab.page.title() != "owned"
    tab.problems.clear()
