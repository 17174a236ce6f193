"""What must hold after a round of the soak, from nothing but the input, the folder and the targets."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import redis

Row = tuple[str, int, int]


class Round:
    """A round that is over."""

    def __init__(self, folder: Path, promise: str, dsn: str, url: str, struck: set[int]) -> None:
        """`struck`: the epochs that were under way when a worker died."""
        self.struck = struck
        self.home = folder / "root" / "soak"
        self.promise = promise
        lines = (folder / "payments.jsonl").read_bytes().splitlines(keepends=True)
        self.events: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self._starts: dict[int, int] = {}  # byte -> place
        at = 0
        for place, line in enumerate(lines):
            self._starts[at] = place
            at += len(line)
        self._starts[at] = len(lines)
        self.manifests = {
            int(p.stem): json.loads(p.read_bytes())
            for p in (self.home / "checkpoints").glob("*.json")
            if p.name.count(".") == 1 and int(p.stem)
        }
        with closing(sqlite3.connect(folder / "out.db")) as db:
            journal = db.execute("SELECT card, number, total FROM journal").fetchall()
            self.previews = _count(db, "journal__preview")
        with psycopg.connect(dsn) as db:
            items = db.execute("SELECT card, number, total FROM items").fetchall()
            if db.execute("SELECT to_regclass('items__preview')").fetchone() != (None,):
                self.previews += db.execute("SELECT count(*) FROM items__preview").fetchone()[0]  # type: ignore[index]
        with closing(redis.Redis.from_url(url)) as client:
            found = [client.hmget(name, "card", "number", "total") for name in client.scan_iter("hashes:*")]
        self.rows: dict[str, list[Row]] = {"journal": journal, "items": items}
        self.hashes = {card.decode(): (int(number), int(total)) for card, number, total in found}

    def _ids(self, start: dict[str, int], end: dict[str, int]) -> set[int]:
        first, last = (self._starts[at.get("payments/0", 0)] for at in (start, end))
        return {self.events[place]["amount"] for place in range(first, last)}

    def in_doubt(self) -> set[int]:
        """The ids of epochs that were planned, and never completed."""
        return self._planned(lambda epoch: epoch not in self.manifests)

    def run_again(self) -> set[int]:
        """The ids of epochs of which a task may have been run again."""
        return self._planned(lambda epoch: epoch in self.struck)

    def _planned(self, wanted: Callable[[int], bool]) -> set[int]:
        found: set[int] = set()
        for path in (self.home / "checkpoints").glob("*.plan.json"):
            if wanted(int(path.name[:12])):
                plan = json.loads(path.read_bytes())
                found |= self._ids(plan["from"], plan["to"])
        return found

    def replayed(self) -> set[int]:
        """The ids of events that failed and came again."""
        refs = {ref["path"] for manifest in self.manifests.values() for ref in manifest["failed"]}
        texts = {text for ref in refs for text in pq.read_table(self.home / ref)["event"].to_pylist()}
        return {json.loads(text)["amount"] for text in texts}

    def dropped(self, sink: str) -> int:
        return sum(m["counters"][name]["dropped"] for m in self.manifests.values() for name in ("echo", sink))

    def state(self) -> dict[str, tuple[int, int]]:
        kept = {}
        for chain in self.manifests[max(self.manifests)]["components"]["echo"].values():
            for ref in chain:  # later files win
                for row in pq.ParquetFile(self.home / ref["path"]).read().to_pylist():
                    kept[row["card"]] = row["number"], row["total"]
        return kept

    def fold(self, without: set[int]) -> tuple[list[Row], dict[str, tuple[int, int]]]:
        state: dict[str, tuple[int, int]] = {}
        rows = []
        for event in self.events:
            if event["amount"] not in without:
                number, total = state.get(event["card"], (0, 0))
                state[event["card"]] = number + 1, total + event["amount"]
                rows.append((event["card"], number + 1, event["amount"]))
        return rows, state


def _count(db: sqlite3.Connection, table: str) -> int:
    there = db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    return db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] if there else 0


def check(done: Round) -> str:
    """All invariants of a promise; what it has cost, in words."""
    ids = {event["amount"] for event in done.events}
    for manifest in done.manifests.values():
        for name, counted in manifest["counters"].items():
            ended = sum(
                counted.get(one, 0) for one in ("delivered", "ended_early", "dropped", "dead_letters", "failed")
            )
            assert counted["processed"] == ended, f"CLOSED {name}, epoch {manifest['epoch']}"
    if done.promise in ("exactly-once", "read-uncommitted"):
        return _exactly_once(done)
    open_ids = done.in_doubt()
    told = []
    for sink, rows in done.rows.items():
        found = Counter(total for _, _, total in rows)
        assert set(found) <= ids, f"{sink}: {set(found) - ids} was never there"
        missing, twice = ids - set(found), {one for one, count in found.items() if count > 1}
        if done.promise == "at-most-once":
            assert not twice, f"AT-MOST-ONCE {sink}: twice {sorted(twice)[:9]}"
            assert len(missing - open_ids) <= done.dropped(sink), (
                f"AT-MOST-ONCE {sink}: {sorted(missing - open_ids)[:9]}"
            )
        else:
            assert not missing, f"AT-LEAST-ONCE {sink}: {sorted(missing)[:9]} of {len(missing)} is missing"
            allowed = open_ids | done.run_again() | (done.replayed() if done.promise == "acknowledging" else set())
            assert twice <= allowed, f"AT-LEAST-ONCE {sink}: {sorted(twice - allowed)[:9]} came again, and was not open"
        told.append(f"{sink}: {len(missing)} missing, {len(twice)} twice")
    if done.promise == "at-least-once":
        assert done.state() == done.fold(set())[1], "STATE"
    if done.promise == "at-most-once":
        assert done.state() == done.fold(open_ids)[1], "STATE"
    return "; ".join(told)


def _exactly_once(done: Round) -> str:
    rows, state = done.fold(set())
    for sink, found in done.rows.items():
        odd = Counter(found) - Counter(rows), Counter(rows) - Counter(found)
        assert not any(odd), f"EXACTLY-ONCE {sink}: too many {list(odd[0])[:5]}, missing {list(odd[1])[:5]}"
    last = {card: (number, total) for card, number, total in rows}
    assert done.hashes == last, "EXACTLY-ONCE hashes"
    assert done.state() == state, "STATE"
    assert done.previews == 0, "READ UNCOMMITTED: previews are left"
    return "nothing missing, nothing twice"


def check_the_check(done: Round) -> None:
    """A row twice, or a row less, that nothing excuses: the check must fail."""
    journal, excused = done.rows["journal"], done.in_doubt() | done.run_again() | done.replayed()
    row = next(row for row in journal if row[2] not in excused)
    tampered = {"a row twice": [*journal, row]}
    if done.dropped("journal") == 0:
        tampered["a row less"] = [other for other in journal if other != row]
    for what, rows in tampered.items():
        done.rows["journal"] = rows
        try:
            check(done)
        except AssertionError as error:
            assert "ONCE journal" in str(error), error
        else:
            raise AssertionError(f"{what} was not noticed")
    done.rows["journal"] = journal
