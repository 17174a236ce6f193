"""The tables of ``history.sqlite``, and how the file is opened for writing.

epochs    one row for each epoch and outcome, with the seconds of its phases
counts    what each instance of each component counted in an epoch; -1 stands for all instances, where they are not known apart
totals    the same over all epochs since the file was created; never trimmed
durations how long steps and sinks took, as histograms (`epoch.history.durations`); never trimmed
outcomes  the number of epochs of each outcome, and the seconds of their phases; never trimmed
ends      where the input of each source partition ended when the driver last checked (`epoch.history.lag`)
samples   how much input each source had, and how much of it was read, over the last two hours
states    the size of each component's state, over the last day
in_doubt  under at-most-once: the input of epochs that broke off (`epoch.in_doubt`); never trimmed
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from streamwork.delivery.counts import KINDS
from streamwork.epoch.history.durations import CREATE as CREATE_DURATIONS
from streamwork.epoch.history.lag import InputEnd, Sample
from streamwork.epoch.history.values import StateSize
from streamwork.epoch.in_doubt import InDoubt

BUSY_SECONDS = 0.1
"""How long a writer waits for a reader that holds the file."""

STEPS = ("plan", "compute", "prepare", "commit", "complete", "prune")
COLUMNS = ("epoch", "fence", "outcome", "started", *STEPS, "events", "note")
NAMES = ", ".join(f'"{name}"' for name in COLUMNS)
IN_DOUBT = ", ".join(f'"{name}"' for name in InDoubt.__struct_fields__)
ENDS = ", ".join(f'"{name}"' for name in InputEnd.__struct_fields__)
SAMPLES = ", ".join(f'"{name}"' for name in Sample.__struct_fields__)
STATES = ", ".join(f'"{name}"' for name in StateSize.__struct_fields__)
_SECONDS = ", ".join(f'"{step}" REAL' for step in STEPS)
_NUMBERS = ", ".join(f"{kind} INTEGER" for kind in KINDS)
_CREATE = (
    f"""CREATE TABLE IF NOT EXISTS epochs (epoch INTEGER, fence INTEGER, outcome TEXT, started REAL, {_SECONDS},
    events INTEGER, note TEXT, PRIMARY KEY (epoch, fence, outcome))""",
    f"""CREATE TABLE IF NOT EXISTS counts (epoch INTEGER, fence INTEGER, outcome TEXT, component TEXT, instance INTEGER,
    {_NUMBERS}, PRIMARY KEY (epoch, fence, outcome, component, instance)) WITHOUT ROWID""",
    f"""CREATE TABLE IF NOT EXISTS totals (outcome TEXT, component TEXT, instance INTEGER, {_NUMBERS},
    PRIMARY KEY (outcome, component, instance)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS in_doubt (epoch INTEGER, fence INTEGER, source TEXT, start INTEGER, "end" INTEGER, unit TEXT,
    PRIMARY KEY (epoch, fence, source)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS ends (source TEXT, partition TEXT, begin INTEGER, "end" INTEGER, unit TEXT, at REAL,
    PRIMARY KEY (source, partition)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS samples (source TEXT, at REAL, "end" INTEGER, "read" INTEGER,
    PRIMARY KEY (source, at)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS states (component TEXT, at REAL, keys INTEGER, bytes INTEGER,
    PRIMARY KEY (component, at)) WITHOUT ROWID""",
    f"CREATE TABLE IF NOT EXISTS outcomes (outcome TEXT PRIMARY KEY, epochs INTEGER, {_SECONDS}) WITHOUT ROWID",
    CREATE_DURATIONS,
)


def columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")}


def open_history(path: Path) -> sqlite3.Connection:
    # The driver is closed by whichever thread ends it.
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
    try:
        db.execute("PRAGMA synchronous=OFF")
        db.execute("PRAGMA journal_mode=DELETE")
        for table in _CREATE:
            db.execute(table)
        for name in ("counts", "totals"):  # a file of an earlier version
            for kind in set(KINDS) - columns(db, name):
                db.execute(f"ALTER TABLE {name} ADD COLUMN {kind} INTEGER DEFAULT 0")
    except BaseException:
        db.close()
        raise
    return db


def marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
