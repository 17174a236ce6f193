"""Pages follow a job that runs, is killed under them, and starts again; and say when the server itself is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from console.console_world import SECRET, showing
from console_browser.tab import PATIENCE, Tab
from console_browser.worlds import running_job
from waiting import wait_for

pytestmark = pytest.mark.slow


def test_a_job_runs_and_is_killed_under_its_page(tmp_path: Path, tab: Tab) -> None:
    with running_job(tmp_path) as job:
        job.feed()
        wait_for(lambda: (job.root / "card-usage").is_dir(), job.process, job.log, seconds=PATIENCE)
        with showing(job.root) as served:
            tab.enter(served, "jobs/card-usage")
            head = tab.page.locator(".job-head")
            expect(head).to_contain_text("running")
            bars = tab.page.locator("#epochs .bar-link")
            expect(bars).not_to_have_count(0)
            before = bars.count()
            job.feed()
            expect(bars).not_to_have_count(before)
            expect(tab.page.locator("#graph .node")).to_have_count(3)
            job.process.kill()
            job.process.wait()
            expect(head).to_contain_text("killed or crashed")
            expect(head.locator(".finding")).to_contain_text("start the job again", ignore_case=True)
            tab.go("")
            expect(tab.page.locator("h1")).to_have_text("The job needs attention.")
    with running_job(tmp_path) as job, showing(job.root) as served:
        tab.enter(served, "jobs/card-usage")
        expect(tab.page.locator(".job-head")).to_contain_text("running")


def test_a_lost_server_is_said_and_found_again(tmp_path: Path, tab: Tab) -> None:
    root = tmp_path / "root"
    root.mkdir()
    link = tab.page.locator("#link")
    with showing(root) as served:
        tab.enter(served)
        expect(tab.page.locator("h1")).to_have_text("No job has run in this root yet.")
    expect(link).to_contain_text("connection lost")
    expect(tab.page.locator("#announcer")).to_contain_text("Connection lost")
    with showing(
        root, listen=str(served.port)
    ):  # its cookies are those of another process: the page asks for the token
        field = tab.page.get_by_label("Token")
        expect(field.or_(tab.page.locator("#link.live")).first).to_be_visible(timeout=PATIENCE * 1000)
        if field.is_visible():
            field.fill(SECRET)
            field.press("Enter")
        expect(link).to_have_text("live")
