"""The history: bounded, readable by anyone, and never in the way."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streamwork.delivery.counts import Counts
from streamwork.epoch.history import history
from streamwork.epoch.history.history import History
from streamwork.epoch.history.reading import counts, outcomes, rows, totals
from streamwork.epoch.history.recorder import NoHistory, Recorder
from streamwork.epoch.history.values import Count, Result, Row, Seconds


def row(epoch: int, fence: int = 1, outcome: Result = Result.COMPLETED) -> Row:
    steps = Seconds(plan=0.001, compute=0.2, prepare=0.01, commit=0.02, complete=0.003)
    return Row(epoch=epoch, fence=fence, outcome=outcome, started=1000.0 + epoch, seconds=steps, events=epoch * 10)


def test_what_was_recorded_comes_back_newest_first(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    assert rows(path, 10) == []
    troubles: list[str] = []
    recorded = History(path, warn=troubles.append)
    written = [row(1), row(2, outcome=Result.ABANDONED), row(3), row(3, fence=2, outcome=Result.ROLLED_FORWARD)]
    for one in written:
        recorded.record(one)
    assert rows(path, 10) == written[::-1], "also while the driver has it open"
    assert [one.epoch for one in rows(path, 2)] == [3, 3]
    recorded.close()
    again = History(path, warn=troubles.append)
    again.record(row(4))
    assert [one.epoch for one in rows(path, 2)] == [4, 3]
    assert troubles == []


def test_it_is_open(tmp_path: Path) -> None:
    recorded = History(tmp_path / "history.sqlite")
    recorded.record(row(7))
    recorded.close()
    with closing(sqlite3.connect(tmp_path / "history.sqlite")) as db:
        assert db.execute("SELECT epoch, outcome, compute, prune FROM epochs").fetchall() == [
            (7, "completed", 0.2, None)
        ]
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_it_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "TRIM_EVERY", 10)
    recorded = History(tmp_path / "history.sqlite", keep=50)
    for epoch in range(1, 312):
        recorded.record(row(epoch))
    kept = [one.epoch for one in rows(tmp_path / "history.sqlite", 1000)]
    assert kept[0] == 311 and 50 <= len(kept) <= 60


def test_a_damaged_one_is_set_aside_and_a_fresh_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    for number in (1, 2):
        path.write_bytes(b"this is no database, but long enough to be looked at" * 50)
        troubles: list[str] = []
        recorded = History(path, warn=troubles.append)
        recorded.record(row(number))
        recorded.close()
        assert [one.epoch for one in rows(path, 10)] == [number]
        assert path.with_name(f"history.sqlite.damaged-{number}").read_bytes().startswith(b"this is no database")
        assert len(troubles) == 1 and "a new one was created" in troubles[0]


def test_one_with_other_tables_is_set_aside_too(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE epochs (other TEXT)")
    recorded = History(path)
    recorded.record(row(1))
    assert [one.epoch for one in rows(path, 10)] == [1]


def test_damage_while_it_is_open_does_not_stop_anything(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    recorded = History(path)
    for epoch in range(1, 200):
        recorded.record(row(epoch))
    data = bytearray(path.read_bytes())
    data[: len(data)] = b"\xee" * len(data)
    path.write_bytes(data)
    for epoch in range(200, 210):
        recorded.record(row(epoch))
    assert rows(path, 1)[0].epoch == 209


def test_a_locked_one_costs_a_row_and_little_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, troubles, waits = tmp_path / "history.sqlite", [], []

    def connect(*given: Any, timeout: float = 5.0, **named: Any) -> sqlite3.Connection:
        waits.append(timeout)
        return sqlite3.Connection(*given, timeout=timeout, **named)

    monkeypatch.setattr("streamwork.epoch.history.history.sqlite3.connect", connect)
    recorded = History(path, warn=troubles.append)
    recorded.record(row(1))
    with closing(sqlite3.Connection(path)) as db:
        db.execute("BEGIN EXCLUSIVE")
        recorded.record(row(2))
    assert max(waits) <= 0.1
    recorded.record(row(3))
    assert [one.epoch for one in rows(path, 10)] == [3, 1]
    assert "epoch 2 is not in it" in troubles[0]


def test_no_folder_no_history_no_error(tmp_path: Path) -> None:
    troubles: list[str] = []
    recorded = History(tmp_path / "nowhere" / "history.sqlite", warn=troubles.append)
    for epoch in range(1, 20):
        recorded.record(row(epoch))
    recorded.close()
    assert len(troubles) == history.MOST_WARNINGS and not (tmp_path / "nowhere").exists()
    (tmp_path / "folder").mkdir()
    History(tmp_path / "folder").record(row(1))


def test_none_is_one() -> None:
    nothing: Recorder = NoHistory()
    nothing.record(row(1))
    nothing.close()


# ---- what was counted ------------------------------------------------------------------------------------------------


def test_counts_are_kept_by_epoch_and_summed_up(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    assert (counts(path, 1), totals(path), outcomes(path)) == ([], [], [])
    recorded = History(path)
    recorded.record(row(1), [Counts("sums", 0, 10, 9, 1), Counts("sums", 1, 5, 5)], wasted=[Counts("sums", 0, 3)])
    recorded.record(row(2, outcome=Result.FAILED), [Counts("sums", 0, 4)])
    recorded.record(row(3), [Counts("sums", 0, 1, 1)])
    assert counts(path, 1) == [
        Count(Result.ABANDONED, Counts("sums", 0, 3)),
        Count(Result.COMPLETED, Counts("sums", 0, 10, 9, 1)),
        Count(Result.COMPLETED, Counts("sums", 1, 5, 5)),
    ]
    assert totals(path) == [
        Count(Result.ABANDONED, Counts("sums", 0, 3)),
        Count(Result.COMPLETED, Counts("sums", 0, 11, 10, 1)),
        Count(Result.COMPLETED, Counts("sums", 1, 5, 5)),
        Count(Result.FAILED, Counts("sums", 0, 4)),
    ]
    found = {one.outcome: one for one in outcomes(path)}
    assert {outcome: one.epochs for outcome, one in found.items()} == {Result.COMPLETED: 2, Result.FAILED: 1}
    assert found[Result.COMPLETED].seconds.compute == pytest.approx(0.4)


def test_the_same_epoch_computed_again_counts_again(tmp_path: Path) -> None:
    recorded = History(tmp_path / "history.sqlite")
    for _ in range(3):
        recorded.record(row(1, outcome=Result.ABANDONED), [Counts("sums", 0, 10)])
    assert counts(tmp_path / "history.sqlite", 1) == [Count(Result.ABANDONED, Counts("sums", 0, 30))]


def test_an_epoch_that_is_known_to_be_committed_is_not_counted_once_more(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    recorded = History(path)
    recorded.record(row(1, outcome=Result.ROLLED_FORWARD), [Counts("sums", 0, 10)])
    recorded.record(row(1), [Counts("sums", -1, 10)], once=True)
    recorded.record(row(2, outcome=Result.ABANDONED), [Counts("sums", 0, 1)])
    recorded.record(row(2), [Counts("sums", -1, 7)], once=True)
    assert sum(one.counts.processed for one in totals(path) if one.outcome.committed) == 17


def test_totals_stay_when_epochs_are_trimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "TRIM_EVERY", 10)
    monkeypatch.setattr(history, "KEEP_COUNTS", 20)
    path = tmp_path / "history.sqlite"
    recorded = History(path, keep=50)
    for epoch in range(1, 312):
        recorded.record(row(epoch), [Counts("sums", instance, 1) for instance in range(4)])
    with closing(sqlite3.connect(path)) as db:
        assert 80 <= db.execute("SELECT count(*) FROM counts").fetchone()[0] <= 4 * 31
    assert sum(one.counts.processed for one in totals(path)) == 4 * 311
    assert outcomes(path)[0].epochs == 311


def test_one_from_before_there_were_counts_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    recorded = History(path)
    recorded.record(row(1))
    recorded.close()
    with closing(sqlite3.connect(path)) as db, db:
        for table in ("counts", "totals", "outcomes"):
            db.execute(f"DROP TABLE {table}")
    assert totals(path) == []
    again = History(path)
    again.record(row(2), [Counts("sums", 0, 1)])
    assert [one.epoch for one in rows(path, 10)] == [2, 1] and len(totals(path)) == 1


def test_counts_that_are_no_counts_are_none(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    History(path).record(row(1), [Counts("sums", 0, 1)])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE totals SET processed = 'many'")
        db.execute("UPDATE outcomes SET epochs = 'many'")
    assert (totals(path), outcomes(path)) == ([], [])
    assert len(counts(path, 1)) == 1


def test_a_file_of_a_version_that_counted_less_is_read_and_goes_on(tmp_path: Path) -> None:
    """What it did not count is 0, before it is opened for writing and after."""
    path = tmp_path / "history.sqlite"
    recorded = History(path)
    recorded.record(Row(epoch=1, fence=1, outcome=Result.COMPLETED, started=0.0), [Counts("work", 0, 5, 5)])
    recorded.close()
    with closing(sqlite3.connect(path)) as db, db:
        for table in ("counts", "totals"):
            db.execute(f"ALTER TABLE {table} DROP COLUMN retried")
    assert [one.counts for one in totals(path)] == [Counts("work", 0, 5, 5)]
    assert [one.counts for one in counts(path, 1)] == [Counts("work", 0, 5, 5)]
    told: list[str] = []
    recorded = History(path, warn=told.append)
    recorded.record(Row(epoch=2, fence=1, outcome=Result.COMPLETED, started=0.0), [Counts("work", 0, 1, 1, retried=7)])
    recorded.close()
    assert told == [] and [one.counts for one in totals(path)] == [Counts("work", 0, 6, 6, retried=7)]
