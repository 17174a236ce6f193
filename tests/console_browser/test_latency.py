"""The latencies of a live job on its page: as a chart, as a table, and with their command."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from console.console_world import showing
from console_browser.tab import Tab
from latency_world import KNOWN, measured

pytestmark = pytest.mark.slow


def test_the_latencies_of_a_live_job(tmp_path: Path, tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    with measured(tmp_path, monkeypatch) as shown, showing(shown.root) as served:
        tab.enter(served, f"jobs/{shown.job}")
        card = tab.page.locator("#latency")
        bars = card.get_by_label("Percentiles of latency").get_by_role("listitem")
        expect(bars).to_have_count(8)
        expect(bars.filter(has_text=f"{KNOWN} p99.9")).to_contain_text("ms")
        expect(bars.filter(has_text=f"{KNOWN} max")).to_contain_text("800 ms")
        expect(bars.filter(has_text="out p50")).to_be_visible()
        shown.live.send(7)
        shown.known_again()
        expect(card.locator("path.line-1")).to_have_count(1)
        expect(card.locator(".cli code")).to_contain_text("streamwork status")
        card.get_by_role("button", name="Table").click()
        shown.known_again()
        row = card.get_by_role("row", name=KNOWN)
        expect(row).to_contain_text("1,000")
        expect(row).to_contain_text("800 ms")
        assert tab.outside() == [] and tab.axe() == []
