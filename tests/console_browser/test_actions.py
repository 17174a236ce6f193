"""Actions: refused where the console is read-only, done where it is not, each after a question."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from console.console_world import showing
from console_browser.tab import PATIENCE, Tab
from console_browser.worlds import REPO, quiet_root, running_job
from letter_jobs import squeamish_job
from sample import run_job
from waiting import wait_for

pytestmark = pytest.mark.slow
SQUEAMISH = """
from pathlib import Path
from letter_jobs import squeamish_job

job = squeamish_job(Path(__file__).parent)
"""


def test_a_read_only_console_does_nothing(tmp_path: Path, tab: Tab) -> None:
    with showing(quiet_root(tmp_path)) as served:
        tab.enter(served, "jobs/squeamish/letters")
        expect(tab.page.locator("#access")).to_have_text("read-only")
        tab.page.get_by_role("button", name="Replay all").click()
        dialog = tab.page.get_by_role("dialog")
        expect(dialog).to_contain_text("read-only")
        expect(dialog.get_by_role("button", name="Replay", exact=True)).to_be_disabled()
        expect(dialog.locator("code")).to_contain_text("streamwork dead-letters replay")
        tab.page.keyboard.press("Escape")
        expect(dialog).not_to_be_visible()
        tab.go("jobs/squeamish/savepoints")
        expect(tab.page.get_by_role("button", name="Create", exact=True)).to_be_disabled()
        refused = tab.page.evaluate(  # the server refuses it, whatever the page does
            "fetch('/api/jobs/squeamish/stop', {method: 'POST', body: '{}'}).then(a => a.json())"
        )
        assert refused["error"]["code"] == "SW-CONSOLE-READ-ONLY"


def test_a_job_is_stopped_after_a_question(tmp_path: Path, tab: Tab) -> None:
    with running_job(tmp_path) as job:
        job.feed()
        wait_for(lambda: (job.root / "card-usage" / "history.sqlite").exists(), job.process, job.log, seconds=PATIENCE)
        with showing(job.root, allow_actions=True) as served:
            tab.enter(served, "jobs/card-usage")
            expect(tab.page.locator("#access")).to_have_text("actions allowed")
            tab.page.get_by_role("button", name="Stop …", exact=True).click()
            dialog = tab.page.get_by_role("dialog")
            dialog.get_by_role("button", name="Cancel").click()
            expect(dialog).not_to_be_visible()
            assert job.process.poll() is None
            tab.page.get_by_role("button", name="Stop …", exact=True).click()
            dialog.get_by_role("button", name="Stop", exact=True).click()
            expect(tab.page.locator(".job-head .chip").first).to_have_text("ended")
            wait_for(lambda: job.process.poll() is not None, seconds=PATIENCE)
            assert job.process.returncode == 0


def test_a_savepoint_of_a_running_job_is_created(tmp_path: Path, tab: Tab) -> None:
    with running_job(tmp_path) as job:
        job.feed()
        wait_for(lambda: (job.root / "card-usage" / "history.sqlite").exists(), job.process, job.log, seconds=PATIENCE)
        with showing(job.root, allow_actions=True) as served:
            tab.enter(served, "jobs/card-usage/savepoints")
            tab.page.get_by_label("Name", exact=True).fill("before-upgrade")
            tab.page.get_by_label("Note").fill("<b>version 4</b>")
            job.feed()  # a savepoint needs a checkpoint
            tab.page.get_by_role("button", name="Create", exact=True).click()
            row = tab.page.get_by_role("row").filter(has_text="before-upgrade")
            expect(row).to_contain_text("complete")
            expect(row).to_contain_text("<b>version 4</b>")
            row.get_by_role("link", name="before-upgrade").click()
            card = tab.page.locator("#savepoint")
            expect(card.get_by_role("table", name="Positions of the savepoint")).to_contain_text("transactions")
            expect(card).to_contain_text("<b>version 4</b>")


def test_dead_letters_are_replayed(tmp_path: Path, tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a process that imports the job file."""
    monkeypatch.setenv("PYTHONPATH", str(REPO / "tests"))
    file = tmp_path / f"{tmp_path.name}.py"
    file.write_text(SQUEAMISH)
    run_job(squeamish_job(tmp_path), tmp_path / "root")
    (tmp_path / "mended").touch()
    with showing(tmp_path / "root", allow_actions=True, job_files=[str(file)]) as served:
        letters = served.get("/api/jobs/squeamish/dead-letters")["dead_letters"]
        tab.enter(served, "jobs/squeamish/letters")
        table = tab.page.get_by_role("table", name="Dead letters, newest checkpoint first")
        expect(table.locator("td:last-child")).to_have_text(["no"] * len(letters))
        tab.page.get_by_role("button", name="Replay all").click()
        tab.page.get_by_role("dialog").get_by_role("button", name="Replay", exact=True).click()
        expect(table.locator("td:last-child")).to_have_text(["yes"] * len(letters))
        assert served.get("/api/jobs/squeamish/dead-letters")["replayed"] == len(letters)
