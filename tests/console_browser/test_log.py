"""The log of a job on its page: newest first, failures with the traceback of their task."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from console.console_world import showing
from console_browser.tab import Tab
from console_browser.worlds import quiet_root
from letter_jobs import squeamish_job
from sample import run_job
from streamwork import JobFailed

pytestmark = pytest.mark.slow


def test_a_failed_task_is_shown_with_its_traceback(tmp_path: Path, tab: Tab) -> None:
    with pytest.raises(JobFailed):
        run_job(squeamish_job(tmp_path, on_error="fail"), tmp_path / "root")
    with showing(tmp_path / "root") as served:
        found = served.get("/api/jobs/squeamish/log")
        (failure,) = served.get("/api/jobs/squeamish/log?errors=1")["entries"]
        tab.enter(served, "jobs/squeamish/runs")
        card = tab.page.locator("#log")
        entries = card.locator("ol > li")
        expect(card.locator(".cli code")).to_have_text(found["cli"])
        expect(entries).to_have_count(len(found["entries"]))
        expect(entries.last).to_contain_text(found["entries"][0]["message"])
        assert len(found["entries"]) > 1
        card.get_by_label("Errors only").check()
        expect(entries).to_have_count(1)
        expect(entries).to_contain_text("squeamish[0], epoch 1")
        expect(entries).to_contain_text(f"{failure['code']} {failure['cause']}")
        expect(entries).to_contain_text(failure["action"])
        trace = entries.get_by_label("Traceback", exact=True)
        expect(trace).not_to_be_visible()
        entries.locator("summary").click()
        expect(trace).to_have_text(failure["traceback"])
        expect(trace).to_contain_text("ValueError: cannot do 4")
        assert tab.outside() == [] and tab.axe() == []


def test_control_a_job_without_a_failure_shows_none(tmp_path: Path, tab: Tab) -> None:
    with showing(quiet_root(tmp_path)) as served:
        tab.enter(served, "jobs/sales/runs")
        card = tab.page.locator("#log")
        expect(card.locator("ol > li").last).to_contain_text("started (local) at checkpoint 0")
        card.get_by_label("Errors only").check()
        expect(card).to_contain_text("No error in the log.")
