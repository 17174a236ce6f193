"""The history: bounded, readable by anyone, and never in the way."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from streamwork.epoch import history
from streamwork.epoch.history import History, NoHistory, Recorder, Result, Row, Seconds, rows


def row(epoch: int, fence: int = 1, outcome: Result = Result.COMPLETED) -> Row:
    steps = Seconds(plan=0.001, compute=0.2, prepare=0.01, commit=0.02, complete=0.003)
    return Row(epoch=epoch, fence=fence, outcome=outcome, started=1000.0 + epoch, seconds=steps, events=epoch * 10)


def test_what_was_recorded_comes_back_newest_first(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    assert rows(path, 10) == []
    troubles: list[str] = []
    recorded = History(path, tell=troubles.append)
    written = [row(1), row(2, outcome=Result.ABANDONED), row(3), row(3, fence=2, outcome=Result.ROLLED_FORWARD)]
    for one in written:
        recorded.record(one)
    assert rows(path, 10) == written[::-1], "also while the driver has it open"
    assert [one.epoch for one in rows(path, 2)] == [3, 3]
    recorded.close()
    again = History(path, tell=troubles.append)
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
        recorded = History(path, tell=troubles.append)
        recorded.record(row(number))
        recorded.close()
        assert [one.epoch for one in rows(path, 10)] == [number]
        assert path.with_name(f"history.sqlite.damaged-{number}").read_bytes().startswith(b"this is no database")
        assert len(troubles) == 1 and "a fresh one was begun" in troubles[0]


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


def test_a_locked_one_costs_a_row_and_little_time(tmp_path: Path) -> None:
    path, troubles = tmp_path / "history.sqlite", []
    recorded = History(path, tell=troubles.append)
    recorded.record(row(1))
    with closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        recorded.record(row(2))
        assert time.monotonic() - began < 1.5
    recorded.record(row(3))
    assert [one.epoch for one in rows(path, 10)] == [3, 1]
    assert "epoch 2 is not in it" in troubles[0]


def test_no_folder_no_history_no_error(tmp_path: Path) -> None:
    troubles: list[str] = []
    recorded = History(tmp_path / "nowhere" / "history.sqlite", tell=troubles.append)
    for epoch in range(1, 20):
        recorded.record(row(epoch))
    recorded.close()
    assert len(troubles) == history.MOST_TOLD and not (tmp_path / "nowhere").exists()
    (tmp_path / "folder").mkdir()
    History(tmp_path / "folder").record(row(1))


def test_none_is_one() -> None:
    nothing: Recorder = NoHistory()
    nothing.record(row(1))
    nothing.close()
