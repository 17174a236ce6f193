"""A state table beside a plain dict that does the same, with keys of every type."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from streamwork import Digits, Event, Record
from streamwork.components.columns import python_values
from streamwork.components.keys import canonical
from streamwork.components.schema import fields_of
from streamwork.components.times import microseconds
from streamwork.state.key_places import Rehash
from streamwork.state.table import Table

START = datetime(2026, 1, 1, tzinfo=UTC)


class Keyed(Event):
    text: str
    number: int
    maybe: int | None
    flag: bool
    day: date
    at: datetime
    when: datetime | None
    price: Annotated[Decimal, Digits(10, 2)]
    raw: bytes | None


class Start(Record):
    start: datetime = START
    side: str = ""


class Kept(Record):
    count: int = 3
    total: float = 0.5
    due: datetime = START
    perhaps: datetime | None = None
    name: str = "none"
    maybe_count: int | None = None
    words: list[str] = []


VALUES: dict[str, list[Any]] = {
    "text": ["", "a", "b", "eight by", "eight bytes", "ä" * 5, "x" * 600, "x" * 601, "\0"],
    "number": [0, 1, -1, 2**62, -(2**63)],
    "maybe": [None, 0, 1, -1],
    "flag": [True, False],
    "day": [date(1969, 12, 31), date(1970, 1, 1), date(2026, 1, 1)],
    "at": [START, START + timedelta(microseconds=1), datetime(1969, 1, 1, tzinfo=UTC)],
    "when": [None, START],
    "price": [Decimal("1.10"), Decimal("-3.00"), Decimal("0.00")],
    "raw": [None, b"", b"\0", b"\xff" * 9],
}
KEYS = [("text",), ("number",), ("maybe",), ("raw",), ("text", "maybe"), ("number", "when", "raw"), tuple(VALUES)]
STARTS = [(START + timedelta(hours=hour), side) for hour in range(3) for side in ("", "left")]
PUT: dict[str, list[Any]] = {
    "count": [0, 7],
    "total": [1.25],
    "due": [START - timedelta(days=1), START, START + timedelta(days=9)],
    "perhaps": [None, START],
    "name": ["", "long name"],
    "maybe_count": [None, 5],
    "words": [[], ["a", "b"]],
}


def few_hashes(hashes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Three different hashes: nearly all keys collide."""
    return np.asarray(hashes % np.uint64(3) << np.uint64(32))


class Pair:
    """A table, and a dict that has the same rows."""

    def __init__(self, key: tuple[str, ...], sub_key: type[Record] | None, rehash: Rehash | None = None) -> None:
        self.key = key
        self.fields = {name: fields_of(Keyed)[name] for name in key}
        self.sub = fields_of(sub_key) if sub_key else {}
        self.table = Table(self.fields, sub_key, Kept, rehash)
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.stored: dict[tuple[Any, ...], dict[str, Any]] = {}

    def batch(self, keys: list[tuple[Any, ...]], whole: bool = True) -> pa.RecordBatch:
        fields = {**self.fields, **self.sub} if whole else self.fields
        columns = {name: field.build([key[at] for key in keys]) for at, (name, field) in enumerate(fields.items())}
        return pa.record_batch(columns)

    def places(self, keys: list[tuple[Any, ...]]) -> np.ndarray[Any, Any]:
        return self.table.place(self.batch(keys))

    def keys(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        fields = {**self.fields, **self.sub}
        return list(zip(*(python_values(f, batch.column(n)) for n, f in fields.items()), strict=True))

    def check(self) -> None:
        assert len(self.table) == len(self.rows)
        places = self.table.places()
        keys = self.keys(self.table.keys(places))
        assert len(set(keys)) == len(keys)
        for name, field in fields_of(Kept).items():
            found = dict(zip(keys, python_values(field, self.table.values(name, places)), strict=True))
            assert found == {key: row[name] for key, row in self.rows.items()}, name

    # ---- calls ----------------------------------------------------------------------------------------------------

    def place(self, keys: list[tuple[Any, ...]]) -> None:
        places = self.places(keys)
        assert len(set(places.tolist())) == len(set(keys))
        for key in keys:
            self.rows.setdefault(key, {name: getattr(Kept(), name) for name in fields_of(Kept)})
        assert self.table.find(self.batch(keys)).tolist() == places.tolist()

    def find(self, keys: list[tuple[Any, ...]]) -> None:
        places = self.table.find(self.batch(keys))
        assert [place >= 0 for place in places.tolist()] == [key in self.rows for key in keys]
        there = places[places >= 0]
        assert self.keys(self.table.keys(there)) == [key for key in keys if key in self.rows]

    def put(self, name: str, keys: list[tuple[Any, ...]], values: list[Any]) -> None:
        keys = list(dict.fromkeys(key for key in keys if key in self.rows))
        given = fields_of(Kept)[name].build([values[at % len(values)] for at in range(len(keys))])
        self.table.put(name, self.table.find(self.batch(keys)), given)
        for at, key in enumerate(keys):
            self.rows[key][name] = values[at % len(values)]

    def forget(self, keys: list[tuple[Any, ...]]) -> None:
        places = self.table.find(self.batch(keys))
        self.table.forget(places[places >= 0])
        for key in keys:
            self.rows.pop(key, None)

    def matches(self, keys: list[tuple[Any, ...]]) -> None:
        size = len(self.key)
        for nulls in (False, True):
            rows, places = self.table.matches(self.batch(keys, whole=False), nulls)
            found = list(zip(rows.tolist(), self.keys(self.table.keys(places)), strict=True))
            assert found == [
                (row, other)
                for row, key in enumerate(keys)
                for other in self.rows
                if other[:size] == key[:size] and (nulls or None not in key[:size])
            ]

    def due(self, name: str, until: datetime) -> None:
        due = [key for key, row in self.rows.items() if row[name] is not None and row[name] <= until]
        size = len(self.key)

        def order(key: tuple[Any, ...]) -> tuple[Any, ...]:
            own = key[0] if size == 1 else key[:size]
            return self.rows[key][name], canonical(own), own is not None, key[size:]

        found = self.table.due(name, microseconds(until))
        assert self.keys(self.table.keys(found)) == sorted(due, key=order)
        times = [microseconds(row[name]) for row in self.rows.values() if row[name] is not None]
        assert self.table.earliest(name) == min(times, default=None)

    def checkpoint(self) -> None:
        """What changed and what was removed brings the rows of the last checkpoint to those of now."""
        table, names = self.table, list(fields_of(Kept))
        removed = [key for batch in table.removed() for key in self.keys(batch)]
        assert set(removed) == set(self.stored) - set(self.rows)
        assert len(set(removed)) == len(removed)
        for key in removed:
            del self.stored[key]
        places = table.changed()
        values = [python_values(fields_of(Kept)[name], table.values(name, places)) for name in names]
        changed = list(zip(self.keys(table.keys(places)), *values, strict=True))
        assert len({key for key, *_ in changed}) == len(changed)
        self.stored.update({key: dict(zip(names, row, strict=True)) for key, *row in changed})
        assert self.stored == self.rows
        assert table.is_changed == bool(changed or removed)
        self.stored = {key: dict(row) for key, row in self.rows.items()}
        table.end_checkpoint()
        assert not table.is_changed
