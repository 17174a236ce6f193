"""The usage writers: three sinks for the same events, which show different things after a crash."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from streamwork import Sink, SinkKind, SqliteSink
from streamwork.components import Located

from .events import Usage

TABLE = "usage"


def upsert(database: Path) -> Sink[Usage]:
    """One row with the newest numbers. To write it again changes nothing."""
    return SqliteSink(database, TABLE, key="meter")


def append(database: Path) -> Sink[Usage]:
    """A row for each transaction. A transaction that is written twice has two rows."""
    return SqliteSink(database, TABLE)


class IncrementingSink(Located, Sink[Usage]):
    """Adds each transaction to the numbers in the table. A transaction that is written twice counts twice.

    It keeps no ledger, so it supports at-most-once and at-least-once only.
    """

    kind = SinkKind.APPEND

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, event: type[Usage]) -> None:
        with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
            db.execute(
                f"CREATE TABLE IF NOT EXISTS {TABLE} "
                "(meter TEXT PRIMARY KEY, transactions INTEGER, fraudulent INTEGER, unknown INTEGER)"
            )

    def write(self, batch: Any) -> None:
        change = (
            f"UPDATE {TABLE} SET transactions = transactions + 1, fraudulent = fraudulent + ?, unknown = unknown + ? "
            "WHERE meter = ?"
        )
        rows = [
            (verdict == "fraud", verdict == "unknown", meter)
            for meter, verdict in zip(batch["meter"].to_pylist(), batch["verdict"].to_pylist(), strict=True)
        ]
        with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
            new = [(meter,) for meter in {row[2] for row in rows}]
            db.executemany(f"INSERT INTO {TABLE} VALUES (?, 0, 0, 0) ON CONFLICT DO NOTHING", new)
            db.executemany(change, rows)


WRITERS: dict[str, Callable[[Path], Sink[Usage]]] = {
    "upsert": upsert,
    "append": append,
    "increment": IncrementingSink,
}
