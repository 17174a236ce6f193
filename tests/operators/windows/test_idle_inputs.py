"""Windows of inputs that become idle: they close without them, and what comes afterwards is late, with reason `idle`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from sample import run_job
from streamwork import Event, Fixed, Job, JsonLines, SqliteSink, count
from streamwork.job import windowed

Rows = list[tuple[Any, ...]]


class Payment(Event):
    card: str
    at: datetime


class Usage(Event):
    card: str
    window_start: datetime
    payments: int


class Till:
    """Two inputs, of which `online` becomes idle at once if it has no events."""

    def __init__(self, folder: Path, parallelism: int, mode: str = "local") -> None:
        self._folder = folder
        self._parallelism = parallelism
        self._mode = mode

    def add(self, source: str, card: str, *minutes: int) -> None:
        lines = [f'{{"card": "{card}", "at": "2026-03-01T08:{minute:02}:00Z"}}\n' for minute in minutes]
        with (self._folder / f"{source}.jsonl").open("a") as file:
            file.writelines(lines)

    def run(self) -> tuple[Rows, Rows]:
        """(windows, late events) so far: card, minute, number"""
        job = Job("idle", parallelism=self._parallelism)
        shops = job.source(JsonLines(self._folder / "shops.jsonl", Payment), id="shops", time="at")
        online = job.source(JsonLines(self._folder / "online.jsonl", Payment), id="online", time="at", idle_after="1ms")
        usage = shops.union(online).window(Fixed("10min"), key="card", id="usage").aggregate(Usage, payments=count())
        usage.sink(SqliteSink(self._folder / "till.db", "usage"), id="usage-table")
        usage.channel("late").sink(SqliteSink(self._folder / "till.db", "late"), id="late-table")
        self.late = run_job(job, self._folder / "root", self._mode).late
        with closing(sqlite3.connect(self._folder / "till.db")) as db:
            windows = db.execute(
                "SELECT card, substr(window_start, 12, 5), payments FROM usage ORDER BY 2, 1, 3"
            ).fetchall()
            late = db.execute("SELECT card, substr(at, 12, 5), late_by, late_reason FROM late").fetchall()
        return windows, late

    def become_idle(self) -> Till:
        """Online becomes idle, and the first window closes without it."""
        self.add("shops", "c1", 1, 6, 12)
        self.add("online", "c2", 2)
        assert self.run() == ([], []), "an event of 08:03 may still come from online"
        self.add("shops", "c1", 13)
        assert self.run() == ([("c1", "08:00", 2), ("c2", "08:00", 1)], [])
        self.add("online", "c2", 4, 15)
        return self

    def check_late(self) -> None:
        """What comes from online when the window has closed is late, and the next window has both inputs."""
        windows, late = self.run()
        assert windows == [("c1", "08:00", 2), ("c2", "08:00", 1)]
        assert late == [("c2", "08:04", 180.0, "idle")]
        assert self.late == 1
        self.add("shops", "c1", 25)
        self.add("online", "c2", 26)
        windows, late = self.run()
        assert windows[2:] == [("c1", "08:10", 2), ("c2", "08:10", 1)] and len(late) == 1


@pytest.fixture(params=[1, 2])
def till(request: pytest.FixtureRequest, tmp_path: Path) -> Till:
    return Till(tmp_path, request.param).become_idle()


def test_an_event_of_an_input_that_was_idle_is_late(till: Till) -> None:
    till.check_late()


def test_control_a_window_that_does_not_know_of_idle_inputs_emits_again(till: Till, monkeypatch: Any) -> None:
    monkeypatch.setattr(windowed, "sources_of", lambda *_: [])
    till.add("shops", "c1", 14)
    windows, late = till.run()
    assert late == [] and windows.count(("c2", "08:00", 1)) == 2
