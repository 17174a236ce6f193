"""`Scene`: a log of transactions and their verdicts, without fraud detection. For a first try, for the drills and for tests.

python -m usage.scene FOLDER --transactions 1000       # creates transactions.log and decisions.db, or adds to them
"""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from streamwork import EventLog

from .decisions import FRAUD, TABLE, TRANSACTION
from .events import Transaction

START = datetime(2026, 3, 1, tzinfo=UTC)


def transaction(number: int) -> Transaction:
    latitude, longitude = 40 + number % 20 / 2, 10 + number % 30 / 3
    at = START + timedelta(seconds=number)
    return Transaction(f"t{number}", f"c{number % 37}", f"m{number % 11}", latitude, longitude, float(number % 90), at)


def verdict(number: int) -> bool | None:
    """Every 7th transaction is judged fraudulent; every 50th has no verdict."""
    return None if number % 50 == 49 else number % 7 == 0


class Scene:
    """The log and the verdicts in a folder, as fraud detection would leave them. Transactions have numbers."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "transactions.log"
        self.decisions = folder / "decisions.db"
        folder.mkdir(parents=True, exist_ok=True)
        EventLog[Transaction].create(self.log, Transaction, key="card", partitions=2, exist_ok=True).close()
        with closing(sqlite3.connect(self.decisions)) as db, db:
            db.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} ({TRANSACTION} TEXT PRIMARY KEY, {FRAUD} INTEGER)")

    def judge(self, numbers: Sequence[int]) -> None:
        rows = [(f"t{number}", verdict(number)) for number in numbers if verdict(number) is not None]
        with closing(sqlite3.connect(self.decisions, timeout=30)) as db, db:
            db.executemany(f"INSERT OR IGNORE INTO {TABLE} ({TRANSACTION}, {FRAUD}) VALUES (?, ?)", rows)

    def append(self, numbers: Sequence[int]) -> None:
        with EventLog(self.log, Transaction) as log:
            log.append([transaction(number) for number in numbers])

    def add(self, numbers: Sequence[int]) -> None:
        """Judge transactions, and append them."""
        self.judge(numbers)
        self.append(numbers)

    def count(self) -> int:
        """The number of transactions in the log."""
        with EventLog(self.log, Transaction) as log:
            return sum(log.ends().values())


def truth(count: int) -> tuple[int, int, int]:
    """The numbers of the first `count` transactions: all, fraudulent, without a verdict."""
    verdicts = [verdict(number) for number in range(count)]
    return count, verdicts.count(True), verdicts.count(None)


def main() -> None:
    parser = argparse.ArgumentParser(description="Create or extend a log of transactions and their verdicts.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--transactions", type=int, default=1_000)
    options = parser.parse_args()
    scene = Scene(options.folder)
    first = scene.count()
    scene.add(range(first, first + options.transactions))
    print(f"{scene.log}: {scene.count()} transactions")


if __name__ == "__main__":
    main()
