"""When windows and joins emit in live mode: at once under the weaker semantics, and with a checkpoint under exactly-once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gangs import GangRun
from streamwork import Event, EventLog, Fixed, Job, LogSource, SqliteSink, count
from waiting import wait_for

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
WEAKER = pytest.mark.parametrize("semantics", ["at-most-once", "at-least-once"])


class Visit(Event):
    page: str
    at: datetime


class Visits(Event):
    page: str
    visits: int


class Title(Event):
    page: str
    title: str
    at: datetime


def visit(second: float, page: str = "a") -> Visit:
    return Visit(page, START + timedelta(seconds=second))


class World:
    """A job with two logs, `visits` and `titles`, in a gang of threads."""

    def __init__(self, folder: Path, semantics: Any) -> None:
        self.folder = folder
        self.job = Job("live", semantics=semantics, checkpoint_every="1h")
        self.visits = EventLog.create(folder / "visits", Visit, key="page", partitions=1)
        self.titles = EventLog.create(folder / "titles", Title, key="page", partitions=1)

    def stream(self, name: str, event: type[Event], **options: Any) -> Any:
        return self.job.source(LogSource(self.folder / name, event), id=name, time="at", **options)

    def sink(self, stream: Any) -> GangRun:
        stream.sink(SqliteSink(self.folder / "out.db", "out"), id="out")
        live = GangRun(self.folder, self.job)
        live.start()
        live.driver.run_epoch()  # starts the gang. Only this call takes checkpoints: from here on there are none
        return live

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / "out.db")) as db:
            try:
                return list(db.execute(f"SELECT {columns} FROM out ORDER BY rowid"))
            except sqlite3.OperationalError:
                return []


@pytest.fixture
def world(tmp_path: Path, semantics: str) -> Iterator[World]:
    made = World(tmp_path, semantics)
    with made.visits, made.titles:
        yield made


@WEAKER
def test_a_window_is_visible_when_event_time_passes_its_end(world: World) -> None:
    windows = world.stream("visits", Visit).window(Fixed("10s"), key="page", id="windows")
    live = world.sink(windows.aggregate(Visits, visits=count()))
    world.visits.append([visit(1), visit(2), visit(11)])
    wait_for(lambda: world.rows("page, visits"))
    assert world.rows("page, visits") == [("a", 2)]
    live.end()


@WEAKER
def test_a_window_by_processing_time_closes_without_events(world: World) -> None:
    windows = world.stream("visits", Visit).window(Fixed("100ms"), key="page", clock="processing", id="windows")
    live = world.sink(windows.aggregate(Visits, visits=count()))
    world.visits.append([visit(1)])
    wait_for(lambda: world.rows("page, visits"))
    assert world.rows("page, visits") == [("a", 1)]
    live.end()


@WEAKER
def test_an_input_that_becomes_idle_releases_windows(world: World) -> None:
    titles = world.stream("titles", Title, idle_after="100ms").map(lambda one: Visit(one.page, one.at), to=Visit)
    both = world.stream("visits", Visit).union(titles)
    windows = both.window(Fixed("10s"), key="page", time="at", id="windows")
    live = world.sink(windows.aggregate(Visits, visits=count()))
    world.titles.append([Title("a", "A", START)])
    world.visits.append([visit(1), visit(2), visit(11)])
    wait_for(lambda: world.rows("page, visits"))
    assert world.rows("page, visits") == [("a", 3)]
    live.end()


@WEAKER
def test_a_row_meets_its_table_at_once(world: World) -> None:
    titles = world.stream("titles", Title).table(key="page", id="titles-table")
    live = world.sink(world.stream("visits", Visit).join(titles, key="page", id="titled"))
    world.titles.append([Title("a", "A", START), Title("b", "B", START + timedelta(seconds=9))])
    world.visits.append([visit(1), visit(2, "b"), visit(9)])
    wait_for(lambda: world.rows("page, title"))
    assert world.rows("page, title")[0] == ("a", "A")
    live.end()


@pytest.mark.parametrize("semantics", ["exactly-once"])
def test_under_exactly_once_a_window_is_visible_with_a_checkpoint(world: World) -> None:
    """The control: the same window."""
    windows = world.stream("visits", Visit).window(Fixed("10s"), key="page", id="windows")
    live = world.sink(windows.aggregate(Visits, visits=count()))
    world.visits.append([visit(1), visit(2), visit(11)])
    wait_for(live.host.moved)
    assert world.rows("page, visits") == []
    live.until(lambda: bool(world.rows("page, visits")), "the window")
    live.end()
