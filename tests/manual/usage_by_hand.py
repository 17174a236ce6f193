"""The job file of the stories: system usage with state by hand. Its folder is in HAND_FOLDER, its start options in HAND_OPTIONS."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

from manual.hand_jobs import Payment, PerCard, Total
from streamwork import CallableSink, Job, LogSource
from streamwork.manual import RewindingSource, SqliteStore, by_hand

FOLDER = Path(os.environ["HAND_FOLDER"])


def write(totals: list[Total]) -> None:
    """The usage writer: sets the numbers of each card, and keeps what it was given."""
    db = sqlite3.connect(FOLDER / "usage.db", timeout=30)
    rows = [(one.card, one.number, one.count, one.total) for one in totals]
    with db:
        db.execute("CREATE TABLE IF NOT EXISTS usage (card TEXT PRIMARY KEY, number INT, count INT, total INT)")
        db.execute("CREATE TABLE IF NOT EXISTS written (card TEXT, number INT, count INT, total INT)")
        db.executemany("INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?)", rows)
        db.executemany("INSERT INTO written VALUES (?, ?, ?, ?)", rows)
    db.close()


job = Job("usage-by-hand", semantics="at-most-once", checkpoint_every="50ms")
store = SqliteStore(FOLDER / "store" / "state.db")
source = RewindingSource(
    LogSource(FOLDER / "log", Payment, max_events=500),
    store,
    **{"rewind": "1min", "every": "20ms", **json.loads(os.environ.get("HAND_OPTIONS", "{}"))},
)
totals = by_hand(
    job.source(source, id="payments"), PerCard(), key="card", store=store, id="per-card", every="100ms", parallelism=2
)
totals.sink(CallableSink(write, lists=True), id="usage")
