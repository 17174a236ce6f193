"""What is under way when a job is rescaled: timers, watermarks, and events of the inbox follow their keys."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crashes import Crash, CrashAt
from sample import run_job
from streamwork import (
    Event,
    EventLog,
    Fixed,
    Job,
    KeyedOperator,
    ListSource,
    LogSource,
    Record,
    SqliteSink,
    count,
)
from streamwork.delivery import DeadLetters
from streamwork.epoch import Phase, assigning, redelivery
from streamwork.epoch.job_folder import open_store
from streamwork.errors import StreamworkError
from streamwork.run.replaying import replay
from streamwork.state import restore_plan as plans
from streamwork.state.restore_plan import ComponentPlan

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


# ---- events that wait for another attempt ---------------------------------------------------------------------------


class Failing(KeyedOperator[Use, Uses, Seen]):
    """Some events fail until they may succeed; under acknowledging they wait for another attempt."""

    def apply(self, event: Use, state: Uses, collector: Any) -> None:
        if fails and event.bad:
            raise ValueError("not yet")
        state.uses += 1
        collector.emit(Seen(event.card, state.uses, None))


def acknowledged(folder: Path, parallelism: int) -> Job:
    made = Job(
        "waiting",
        semantics="at-least-once",
        tracking="acknowledge",
        retry_after=0,
        max_attempts=1_000,
        checkpoint_every=0,
        parallelism=parallelism,
    )
    uses = made.source(ListSource(EVENTS, Use, max_events=15), id="uses", parallelism=1)
    uses.apply(Failing(), key="card", id="uses-of").sink(SqliteSink(folder / "out.db", "out"), id="out")
    return made


def end_with_waiting(folder: Path, parallelism: int) -> int:
    """A run that breaks off when all has been read, and some events wait. How many do."""
    folder.mkdir()
    with pytest.raises(Crash):
        run_job(acknowledged(folder, parallelism), folder / "root", watcher=CrashAt(12, Phase.COMPLETE))
    store = open_store(folder / "root", "waiting")
    at = store.manifest(max(store.completed()))
    assert at.positions["uses/0"] == len(EVENTS)
    return len(at.failed)


@pytest.mark.parametrize("after", [1, 3, 7])
def test_events_that_wait_for_another_attempt_follow_their_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    assert end_with_waiting(tmp_path / "job", 2)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "fails", False)
        run_job(acknowledged(tmp_path / "job", after), tmp_path / "job" / "root")
    with closing(sqlite3.connect(tmp_path / "job" / "out.db")) as db:
        last = dict(db.execute("SELECT card, max(uses) FROM out GROUP BY card"))
    assert last == Counter(event.card for event in EVENTS), "each event once in the state of its key"


def test_control_state_that_does_not_follow_its_keys_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "groups_of", lambda instance, count, groups: range(groups // 2))
    monkeypatch.setattr(ComponentPlan, "is_spread", property(lambda self: True))
    with pytest.raises((AssertionError, StreamworkError)):
        test_events_that_wait_for_another_attempt_follow_their_keys(tmp_path, monkeypatch, 3)


# ---- watermarks in flight -------------------------------------------------------------------------------------------


class Window(Event):
    card: str
    window_start: datetime
    window_end: datetime
    uses: int


def skewed(number: int) -> Use:
    """The time of each card, and so of each partition, is at another place; some events come late."""
    card = number % 11
    late = 45 if number % 17 == 3 else 0
    return Use(f"c{card}", START + timedelta(seconds=2 * number + 9 * card - late))


SKEWED = [skewed(number) for number in range(150)]
SKEWED += [
    Use(f"c{number}", START + timedelta(hours=1)) for number in range(40)
]  # in every partition: all windows close


def windowed(folder: Path, first: int, until: int, parallelism: int, readers: int) -> None:
    """Reads these events, behind those of the lives before."""
    with EventLog.create(folder / "log", Use, key="card", partitions=4, exist_ok=True) as log:
        log.append(SKEWED[first:until])
    made = Job("late", checkpoint_every=0, parallelism=parallelism)
    uses = made.source(LogSource(folder / "log", Use, max_events=24), id="uses", time="at", parallelism=readers)
    windows = uses.window(Fixed("20s"), key="card", id="windows").aggregate(Window, uses=count())
    windows.sink(SqliteSink(folder / "out.db", "out"), id="out")
    windows.channel("late").sink(SqliteSink(folder / "late.db", "out"), id="late")
    run_job(made, folder / "root")


def all_windows(folder: Path, *lives: tuple[int, int]) -> tuple[list[Any], list[Any]]:
    """Three lives with these parallelisms of windows and of the source: the windows, and the late events."""
    folder.mkdir()
    for (first, until), (parallelism, readers) in zip(pairwise((0, 50, 100, len(SKEWED))), lives, strict=True):
        windowed(folder, first, until, parallelism, readers)
    with closing(sqlite3.connect(folder / "out.db")) as out, closing(sqlite3.connect(folder / "late.db")) as late:
        return sorted(out.execute("SELECT * FROM out")), sorted(late.execute("SELECT * FROM out"))


def test_watermarks_stay_with_their_partitions(tmp_path: Path) -> None:
    whole = all_windows(tmp_path / "whole", (2, 2), (2, 2), (2, 2))
    assert len(whole[0]) > 30 and len(whole[1]) >= 3
    assert all_windows(tmp_path / "rescaled", (2, 2), (5, 4), (3, 1)) == whole


def test_control_a_start_that_forgets_watermarks_takes_late_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assigning, "partition_watermarks", lambda *_: {})
    with pytest.raises((AssertionError, StreamworkError)):
        test_watermarks_stay_with_their_partitions(tmp_path)
