"""Server-sent events: the first look, changes, jobs that come and go, a job that is killed under a page."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from console.console_world import showing
from query.query_jobs import sales, sales_job
from sample import run_job
from streamwork.serving.limits import Limits
from streamwork.world import RealDisk

EVENTS = sales(range(0, 4_000, 97))


def replace(path: Path, content: Any) -> None:
    """As a driver writes."""
    RealDisk().replace(path, json.dumps(content).encode())


def test_the_overview_tells_what_changes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    first = run_job(sales_job(EVENTS[:10], tmp_path), root).checkpoint
    with showing(root) as served, served.events("/api/events") as events:
        name, told = next(events)
        assert name == "overview" and told["all"] and [one["job"] for one in told["jobs"]] == ["sales"]
        assert told["jobs"] == served.get("/api/overview")["jobs"]
        second = run_job(sales_job(EVENTS[:30], tmp_path), root).checkpoint
        assert first is not None and second is not None and second > first
        while (one := told["jobs"][0])["checkpoint"] != second or one["running"]:
            name, told = next(events)
            assert name == "overview" and not told["all"] and told["gone"] == []
        (root / "sales").rename(tmp_path / "elsewhere")
        name, told = next(events)
        assert (told["jobs"], told["gone"]) == ([], ["sales"])
        (tmp_path / "elsewhere").rename(root / "sales")
        name, told = next(events)
        assert [one["job"] for one in told["jobs"]] == ["sales"]


def test_a_job_tells_what_changes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    run_job(sales_job(EVENTS[:10], tmp_path), root)
    with showing(root) as served, served.events("/api/jobs/sales/events") as events:
        name, told = next(events)
        assert name == "job" and told["cli"] == served.get("/api/jobs/sales")["cli"]
        second = run_job(sales_job(EVENTS[:30], tmp_path), root).checkpoint
        while told["status"]["checkpoint"] != second or told["status"]["running"]:
            name, told = next(events)
            assert name == "job"
        (root / "sales").rename(tmp_path / "elsewhere")
        name, told = next(events)
        assert name == "gone" and told["error"]["code"] == "SW-ROOT-EMPTY"
        (tmp_path / "elsewhere").rename(root / "sales")
        name, told = next(events)
        assert name == "job" and told["status"]["checkpoint"] == second


def test_a_job_that_was_killed_is_shown_as_such(tmp_path: Path) -> None:
    """Its process is gone, and no file says so."""
    root = tmp_path / "root"
    run_job(sales_job(EVENTS[:10], tmp_path), root)
    with showing(root) as served, served.events("/api/events") as events:
        next(events)
        for path in (root / "sales" / "fences").glob("*.alive"):
            beat = json.loads(path.read_text())
            replace(path, {"count": beat["count"] + 1, "phase": "running"})
        told = next(events)[1]
        assert told["jobs"][0]["running"]  # this process holds it, by its number and its start
        for path in (root / "sales" / "fences").glob("[0-9].json"):
            fence = json.loads(path.read_text())
            fence["process"]["started"] += 1  # its number belongs to another process now
            replace(path, fence)
        while told["jobs"][0]["running"] is not False:
            told = next(events)[1]
        assert told["jobs"][0]["driver"]["life"] == "gone" and "killed" in told["jobs"][0]["verdict"]["text"]


def test_too_many_clients_are_refused(tmp_path: Path) -> None:
    run_job(sales_job(EVENTS[:10], tmp_path), tmp_path / "root")
    with showing(tmp_path / "root", limits=Limits(streams=1)) as served, served.events("/api/events") as events:
        next(events)
        answer = served.ask("/api/events")
        assert (answer.status, answer.code) == (429, "SW-SERVE-BUSY")


def test_nothing_is_read_while_nobody_looks(tmp_path: Path) -> None:
    def polls() -> bool:
        return any(thread.name == "streamwork-console" for thread in threading.enumerate())

    run_job(sales_job(EVENTS[:10], tmp_path), tmp_path / "root")
    with showing(tmp_path / "root") as served:
        assert not polls()
        with served.events("/api/events") as events:
            next(events)
            assert polls()
        for thread in threading.enumerate():
            if thread.name == "streamwork-console":
                thread.join(60)
        assert not polls()
