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

from soak.soak_job import POISON_EVERY

Row = tuple[str, int, int]
MOST_POLLED = 600
"""At most so many events does an epoch take from the polled source."""


class Round:
    """A round that is over."""

    def __init__(self, folder: Path, promise: str, source: str, dsn: str, url: str, struck: set[int]) -> None:
        """`struck`: the epochs that were under way when a worker died."""
        self.struck = struck
        self.polled = source == "polled"
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
        if self.polled:  # positions count events, and a plan does not say how far it goes
            first = start.get("payments/0", 0)
            last = end.get("payments/0", first + MOST_POLLED)
        else:
            first, last = (self._starts[at.get("payments/0", 0)] for at in (start, end))
        return {event["amount"] for event in self.events[first:last]}

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

    @property
    def poison(self) -> set[int]:
        """The ids of events that may have been dead letters, and were replayed."""
        return {event["amount"] for event in self.events if event["amount"] % POISON_EVERY == 0}

    def fold(self, without: set[int]) -> dict[str, tuple[int, int]]:
        """The state, in which the order of events does not show."""
        state: dict[str, tuple[int, int]] = {}
        for event in self.events:
            if event["amount"] not in without:
                number, total = state.get(event["card"], (0, 0))
                state[event["card"]] = number + 1, total + event["amount"]
        return state


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
            allowed = open_ids | done.run_again() | done.poison
            allowed |= done.replayed() if done.promise == "acknowledging" else set()
            assert twice <= allowed, f"AT-LEAST-ONCE {sink}: {sorted(twice - allowed)[:9]} came again, and was not open"
        told.append(f"{sink}: {len(missing)} missing, {len(twice)} twice")
    if done.promise == "at-least-once":
        assert done.state() == done.fold(set()), "STATE"
    if done.promise == "at-most-once":
        assert done.state() == done.fold(open_ids), "STATE"
    return "; ".join(told)


def _exactly_once(done: Round) -> str:
    wanted = Counter((event["card"], event["amount"]) for event in done.events)
    for sink, rows in done.rows.items():
        found = Counter((card, amount) for card, _, amount in rows)
        odd = found - wanted, wanted - found
        assert not any(odd), f"EXACTLY-ONCE {sink}: too many {list(odd[0])[:5]}, missing {list(odd[1])[:5]}"
        numbers: dict[str, list[int]] = {}
        for card, number, _ in rows:
            numbers.setdefault(card, []).append(number)
        for card, those in numbers.items():
            assert sorted(those) == list(range(1, len(those) + 1)), f"SEQUENCE {sink}, {card}"
        in_order = [row for row in sorted(rows, key=lambda row: row[1]) if row[2] not in done.poison]
        for card in numbers:
            ids = [amount for name, _, amount in in_order if name == card]
            assert ids == sorted(ids), f"ORDER {sink}, {card}"
    last = {card: (number, amount) for card, number, amount in sorted(done.rows["journal"], key=lambda row: row[1])}
    assert done.hashes == last, "EXACTLY-ONCE hashes"
    assert done.state() == done.fold(set()), "STATE"
    assert done.previews == 0, "READ UNCOMMITTED: previews are left"
    return "nothing missing, nothing twice"


def check_the_check(done: Round) -> None:
    """A row twice, or a row less, that nothing excuses: the check must fail."""
    journal, excused = done.rows["journal"], done.in_doubt() | done.run_again() | done.replayed() | done.poison
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
