"""Read the verdicts of fraud detection from its result store, a table in a SQLite file."""

import json
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

TABLE, ID, FRAUD = "results", "id", "fraud"
"""The table that fraud detection writes: a row for each transaction, and whether it was judged fraudulent."""

PATIENCE = 0.02
"""Seconds to wait for a verdict that is missing, or for a lock."""
STALLED = 1.0
"""Seconds after which a query is interrupted: the store is out of order."""
QUERY = 1_000
"""Transactions per query."""


class StoreUnavailable(Exception):
    """The store is missing, locked, damaged or too slow. A later attempt may succeed."""

    retryable = True


class ResultStore:
    """Looks up verdicts. It never creates or changes the store.

    The file is opened for each look-up: a file that was moved away, restored or replaced is noticed.
    """

    def __init__(self, path: Path, patience: float = PATIENCE, stalled: float = STALLED) -> None:
        self._path = path
        self._patience = patience
        self._stalled = stalled

    def verdicts(self, ids: Iterable[str]) -> dict[str, bool]:
        """Transaction -> was it judged fraudulent? Transactions without a verdict are absent.

        Waits up to `patience` for missing verdicts, once for all of them. Raises `StoreUnavailable`.
        """
        missing = list(dict.fromkeys(ids))
        found: dict[str, bool] = {}
        until = time.monotonic() + self._patience
        try:
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=self._patience, isolation_level=None)) as db:
                while True:
                    for start in range(0, len(missing), QUERY):
                        found |= self._select(db, missing[start : start + QUERY])
                    missing = [id for id in missing if id not in found]
                    if not missing or time.monotonic() >= until:
                        return found
                    time.sleep(self._patience / 10)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error

    def _select(self, db: sqlite3.Connection, ids: list[str]) -> dict[str, bool]:
        limit = time.monotonic() + self._stalled
        db.set_progress_handler(lambda: time.monotonic() > limit, 1_000)
        query = f"SELECT {ID}, {FRAUD} FROM {TABLE} WHERE {ID} IN (SELECT value FROM json_each(?))"
        return {id: bool(fraud) for id, fraud in db.execute(query, (json.dumps(ids),)) if fraud is not None}
