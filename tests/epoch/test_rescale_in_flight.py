"""What is under way when a job is rescaled: timers, watermarks, and events of the inbox follow their keys."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sample import run_job
from streamwork import Event, Job, KeyedOperator, ListSource, Record, SqliteSink
from streamwork.delivery import DeadLetters
from streamwork.epoch import redelivery
from streamwork.epoch.job_folder import open_store
from streamwork.errors import StreamworkError
from streamwork.run.replaying import replay

START = datetime(2026, 1, 1, tzinfo=UTC)


class Use(Event):
    card: str
    at: datetime
    bad: bool = False


class Seen(Event):
    card: str
    uses: int
    closed: datetime | None


class Uses(Record):
    uses: int = 0


EVENTS = [Use(f"c{n % 11}", START + timedelta(seconds=n), bad=n % 13 == 5) for n in range(120)]
fails = True


class Sessions(KeyedOperator[Use, Uses, Seen]):
    """Says how often a card was used, a minute after its last use."""

    def apply(self, event: Use, state: Uses, collector: Any) -> None:
        if fails and event.bad:
            raise ValueError("not yet")
        state.uses += 1
        collector.set_timer(event.at + timedelta(minutes=1))

    def on_timer(self, key: Any, at: datetime, state: Uses, collector: Any) -> None:
        collector.emit(Seen(key, state.uses, at))


def job(folder: Path, events: int, parallelism: int) -> Job:
    made = Job("flight", checkpoint_every=0, parallelism=parallelism)
    uses = made.source(ListSource(EVENTS[:events], Use, max_events=15), id="uses", time="at", parallelism=1)
    seen = uses.apply(Sessions(), key="card", id="sessions", on_error="dead-letter")
    seen.sink(SqliteSink(folder / "out.db", "out"), id="out")
    return made


def rows(folder: Path) -> list[Any]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return sorted(db.execute("SELECT card, closed, uses FROM out"))


def live(folder: Path, monkeypatch: pytest.MonkeyPatch, *parallelisms: int) -> list[Any]:
    """Half of the input; the letters are replayed, with nothing running; then the rest. Each part with another parallelism."""
    folder.mkdir()
    before, after, last = parallelisms
    run_job(job(folder, 60, before), folder / "root")
    store = open_store(folder / "root", "flight")
    letters = DeadLetters(store.disk, store.folder).all("sessions")
    assert letters
    replay(store, str(folder / "root"), job(folder, 60, after).graph(), letters)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "fails", False)
        run_job(job(folder, 90, after), folder / "root")
        run_job(job(folder, 120, last), folder / "root")
    return rows(folder)


def test_timers_and_replayed_events_follow_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = live(tmp_path / "whole", monkeypatch, 2, 2, 2)
    assert len(whole) > 40
    assert live(tmp_path / "rescaled", monkeypatch, 2, 5, 3) == whole


def test_control_events_that_keep_their_instance_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redelivery, "instance_of", lambda group, parallelism, groups: 0)
    with pytest.raises((AssertionError, StreamworkError)):
        test_timers_and_replayed_events_follow_their_keys(tmp_path, monkeypatch)
