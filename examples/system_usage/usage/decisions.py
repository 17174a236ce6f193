"""`Decisions`: the verdicts of fraud detection, in its SQLite database."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from .settings import PATIENCE, STALLED

TABLE, TRANSACTION, FRAUD = "decisions", '"transaction"', "fraud"
"""The table that fraud detection writes, and its columns: the id of a transaction, and 1 if it was judged fraudulent."""
QUERY = f"SELECT {TRANSACTION}, {FRAUD} FROM {TABLE} WHERE {TRANSACTION} IN (SELECT value FROM json_each(?))"
POLL = 0.002
"""Seconds between two queries for missing verdicts."""
TOGETHER = 1_000
"""Transactions per query."""


class StoreUnavailable(Exception):
    """The store is missing, locked, damaged or too slow. A later attempt may succeed."""

    retryable = True


class Decisions:
    """Looks up verdicts. It never creates or changes the store.

    The file is opened for each look-up, so that a file that was moved away, restored or replaced is noticed. A query that computes
    for longer than `stalled` is interrupted; one that waits for the disk is not.
    """

    def __init__(self, path: Path, patience: float = PATIENCE, stalled: float = STALLED) -> None:
        self._path = path
        self._patience = patience
        self._stalled = stalled

    def find(self, transactions: Iterable[str]) -> dict[str, bool]:
        """Transaction -> whether it was judged fraudulent. Transactions without a verdict are absent.

        Waits up to `patience` for missing verdicts, once for all of them. Raises `StoreUnavailable`.
        """
        missing = list(dict.fromkeys(transactions))
        found: dict[str, bool] = {}
        until = time.monotonic() + self._patience
        try:
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=self._patience, isolation_level=None)) as db:
                while True:
                    for start in range(0, len(missing), TOGETHER):
                        found |= self._select(db, missing[start : start + TOGETHER])
                    missing = [id for id in missing if id not in found]
                    if not missing or time.monotonic() >= until:
                        return found
                    time.sleep(POLL)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error

    def _select(self, db: sqlite3.Connection, ids: list[str]) -> dict[str, bool]:
        limit = time.monotonic() + self._stalled
        db.set_progress_handler(lambda: time.monotonic() > limit, 1_000)
        return {id: bool(fraud) for id, fraud in db.execute(QUERY, (json.dumps(ids),)) if fraud is not None}
