"""A run in live mode that ends when it has caught up, where some sources have reached their end before it begins."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from live_jobs import Counting, Order
from sample import run_job
from streamwork import EventLog, Job, LogSource, SqliteSink

NAMES = ("first", "second")


def two_sources(folder: Path) -> Job:
    job = Job("live", checkpoint_every=0)
    for name in NAMES:
        orders = job.source(LogSource(folder / name, Order), id=name)
        sink = SqliteSink(folder / f"{name}.db", "out")
        orders.apply(Counting(), key="shop", id=f"{name}-count").sink(sink, id=f"{name}-out")
    return job


def rows(folder: Path, name: str) -> list[tuple[int, int]]:
    with sqlite3.connect(folder / f"{name}.db") as db:
        return list(db.execute("SELECT number, nth FROM out ORDER BY rowid"))


@pytest.mark.usefixtures("gang_of_threads")
def test_a_source_that_is_at_its_end_already_is_not_read_again(tmp_path: Path) -> None:
    sent = dict.fromkeys(NAMES, 0)
    for round_ in range(4):
        for name in NAMES if round_ == 0 else [NAMES[round_ % 2]]:
            with EventLog.create(tmp_path / name, Order, exist_ok=True) as log:
                log.append([Order(sent[name] + i, "shop") for i in range(20)])
            sent[name] += 20
        run_job(two_sources(tmp_path), tmp_path / "root", "live")
        for name in NAMES:
            assert rows(tmp_path, name) == [(n, n + 1) for n in range(sent[name])], (round_, name)


@pytest.mark.usefixtures("gang_of_threads")
def test_a_plan_that_forgets_where_sources_stand_reads_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr("streamwork.epoch.planner.by_report", lambda graph, plan: frozenset(NAMES))
    with pytest.raises(AssertionError):
        test_a_source_that_is_at_its_end_already_is_not_read_again(tmp_path)
