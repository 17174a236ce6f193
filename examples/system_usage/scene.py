"""A small world for the job, without fraud detection: a log of transactions and a result store with known verdicts.

    python scene.py FOLDER --transactions 1000       # creates transactions.log and results.db, or adds to them
"""

import argparse
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from usage_events import Transaction
from verdicts import FRAUD, ID, TABLE

from streamwork import EventLog

START = datetime(2026, 3, 1, tzinfo=UTC)


def transaction(number: int) -> Transaction:
    place = 40 + number % 20 / 2, 10 + number % 30 / 3
    at = START + timedelta(seconds=number)
    return Transaction(f"t{number}", f"c{number % 37}", f"m{number % 11}", *place, float(number % 90), at)


def verdict(number: int) -> bool | None:
    """Every 7th transaction is judged fraudulent; every 50th has no verdict."""
    return None if number % 50 == 49 else number % 7 == 0


class Scene:
    """The log and the result store in a folder."""

    def __init__(self, folder: Path) -> None:
        self.transactions = folder / "transactions.log"
        self.results = folder / "results.db"
        folder.mkdir(parents=True, exist_ok=True)
        EventLog.create(self.transactions, Transaction, key="card", partitions=2, exist_ok=True).close()
        with closing(sqlite3.connect(self.results)) as db, db:
            db.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} ({ID} TEXT PRIMARY KEY, {FRAUD} INTEGER)")

    def judge(self, numbers: Sequence[int]) -> None:
        rows = [(f"t{number}", verdict(number)) for number in numbers if verdict(number) is not None]
        with closing(sqlite3.connect(self.results, timeout=30)) as db, db:
            db.executemany(f"INSERT OR REPLACE INTO {TABLE} ({ID}, {FRAUD}) VALUES (?, ?)", rows)

    def append(self, numbers: Sequence[int]) -> None:
        with EventLog(self.transactions, Transaction) as log:
            log.append([transaction(number) for number in numbers])

    def add(self, numbers: Sequence[int]) -> None:
        """Judge transactions, and append them."""
        self.judge(numbers)
        self.append(numbers)

    def count(self) -> int:
        """The transactions in the log."""
        with EventLog(self.transactions, Transaction) as log:
            return sum(end for end in log.ends().values())


def main() -> None:
    parser = argparse.ArgumentParser(description="Create or extend a log of transactions and a result store.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--transactions", type=int, default=1_000)
    options = parser.parse_args()
    scene = Scene(options.folder)
    first = scene.count()
    scene.add(range(first, first + options.transactions))
    print(f"{scene.transactions}: {scene.count()} transactions; {scene.results}")


if __name__ == "__main__":
    main()
