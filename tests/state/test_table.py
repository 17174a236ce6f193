"""`Table` against a plain dict: random calls, keys of every type, hashes that collide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamwork import Digits, Event, Record
from streamwork.components.columns import python_values
from streamwork.components.hashing import hash_columns
from streamwork.components.keys import canonical
from streamwork.components.schema import arrow_schema, fields_of
from streamwork.components.times import microseconds
from streamwork.state import key_index, table_columns
from streamwork.state.table import Table

START = datetime(2026, 1, 1, tzinfo=UTC)
Hash = Callable[[Sequence[pa.Array], int], np.ndarray[Any, Any]]


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


def few_hashes(columns: Sequence[pa.Array], rows: int) -> np.ndarray[Any, Any]:
    """Three different hashes: nearly all keys collide."""
    return hash_columns(columns, rows) % np.uint64(3) << np.uint64(32)


class Pair:
    """A table, and a dict that has the same rows."""

    def __init__(self, key: tuple[str, ...], sub_key: type[Record] | None, hashed: Hash = hash_columns) -> None:
        self.key = key
        self.fields = {name: fields_of(Keyed)[name] for name in key}
        self.sub = fields_of(sub_key) if sub_key else {}
        self.table = Table(self.fields, sub_key, Kept, hashed)
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
            return self.rows[key][name], canonical(key[0] if size == 1 else key[:size]), key[size:]

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


def some_keys(key: tuple[str, ...], sub: bool) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    own = st.tuples(*(st.sampled_from(VALUES[name]) for name in key))
    whole = st.tuples(own, st.sampled_from(STARTS)).map(lambda two: (*two[0], *two[1])) if sub else own
    return st.lists(whole, max_size=12)


@st.composite
def calls(draw: st.DrawFn) -> tuple[tuple[str, ...], bool, bool, list[tuple[str, list[Any]]]]:
    key, sub, collide = draw(st.sampled_from(KEYS)), draw(st.booleans()), draw(st.booleans())
    keys = some_keys(key, sub)
    name = st.sampled_from(list(PUT))
    times = st.tuples(st.sampled_from(["due", "perhaps"]), st.sampled_from(PUT["due"]))
    one = st.one_of(
        st.tuples(st.just("place"), st.tuples(keys)),
        st.tuples(st.just("find"), st.tuples(keys)),
        st.tuples(st.just("put"), st.tuples(name, keys)),
        st.tuples(st.just("forget"), st.tuples(keys)),
        st.tuples(st.just("matches"), st.tuples(keys)),
        st.tuples(st.just("due"), times),
        st.tuples(st.just("checkpoint"), st.tuples()),
    )
    return key, sub, collide, draw(st.lists(one, max_size=25))


def run(given: tuple[tuple[str, ...], bool, bool, list[tuple[str, Any]]]) -> None:
    key, sub, collide, made = given
    pair = Pair(key, Start if sub else None, few_hashes if collide else hash_columns)
    for name, arguments in made:
        if name == "put":
            pair.put(*arguments, PUT[arguments[0]])
        else:
            getattr(pair, name)(*arguments)
        pair.check()


@settings(max_examples=60, deadline=None)
@given(calls())
def test_a_table_is_a_dict(made: Any) -> None:
    run(made)


@pytest.mark.slow
@settings(max_examples=2_000, deadline=None)
@given(calls())
def test_a_table_is_a_dict_at_length(made: Any) -> None:
    run(made)


def test_keys_with_one_hash_are_told_apart_by_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without the comparison the oracle finds a difference."""
    made = [("place", ([("a",), ("b",), ("eight by",), ("x",), ("",)],))]
    run((("text",), False, True, made))
    equal = table_columns._equal
    monkeypatch.setattr(table_columns, "_equal", lambda some, others: np.ones(len(equal(some, others)), bool))
    with pytest.raises(AssertionError):
        run((("text",), False, True, made))


@pytest.mark.parametrize("sub_key", [None, Start])
def test_many_rows_come_and_go(sub_key: type[Record] | None) -> None:
    """Places are used again, values that were replaced are dropped, and slots of removed keys become empty."""
    pair, rng = Pair(("text", "maybe"), sub_key), np.random.default_rng(5)
    starts = STARTS if sub_key else [()]
    keys = [(f"key-{n}", n % 3 or None, *starts[n % len(starts)]) for n in range(3_000)]
    for turn in range(12):
        some = [keys[at] for at in rng.integers(0, len(keys), 2_000)]
        pair.place(some)
        pair.put("name", some, [f"turn {turn}", "x" * turn])
        pair.put("count", some, [turn])
        pair.matches(some[:20])
        pair.forget([keys[at] for at in rng.integers(0, len(keys), 2_500)])
        if turn % 3 == 0:
            pair.checkpoint()
    pair.check()
    table = pair.table
    assert table._rows.room < 2 * len(keys)
    names = table._columns["name"]
    assert isinstance(names, table_columns.ArrowColumn)
    assert names._count <= 2 * len(table) + 2 * 2_000 + table_columns.SMALL
    assert len(names._chunks) < 12
    assert len(table._rows._index._slots) <= 8 * len(keys)


def test_a_full_index_finds_and_misses() -> None:
    """Many keys, in batches of all sizes, with hashes that share their low bits."""
    rng, index = np.random.default_rng(2), key_index.KeyIndex()
    keys = rng.permutation(1_500).astype(np.uint64) << np.uint64(20) | np.uint64(5)
    known: dict[int, int] = {}
    stored = np.zeros(1_500, np.uint64)
    at = 0
    while at < len(keys):
        size = int(rng.integers(1, 90))
        some = keys[at : at + size]
        some = np.concatenate([some, some[: size // 2]])
        assert (index.find(some, lambda rows, places: stored[places] == some[rows]) == -1).all()  # noqa: B023
        base = len(known)
        places, first = index.add(
            some,
            lambda rows, others: some[rows] == some[others],  # noqa: B023
            lambda count: np.arange(base, base + count),  # noqa: B023
        )
        stored[places] = some
        assert first.tolist() == list(range(len(set(some.tolist()))))
        known.update(zip(some.tolist(), places.tolist(), strict=True))
        at += size
    found = index.find(keys, lambda rows, places: stored[places] == keys[rows])
    assert found.tolist() == [known[key] for key in keys.tolist()]
    assert len(index) == len(known) == 1_500


def test_hashes_depend_on_values_alone() -> None:
    """A slice, another chunk, a null with bytes behind it: the same value has the same hash."""
    for name, values in VALUES.items():
        field = fields_of(Keyed)[name]
        column = field.build([*values, *values])
        hashes = hash_columns([column], len(column))
        assert hashes[: len(values)].tolist() == hashes[len(values) :].tolist()
        assert len(set(hashes.tolist())) == len(values), name
        sliced = column.slice(1, len(values))
        assert hash_columns([sliced], len(sliced)).tolist() == hashes[1 : 1 + len(values)].tolist()
    hidden = pa.Array.from_buffers(
        pa.string(), 2, [pa.py_buffer(b"\x02"), pa.array([0, 3, 4], pa.int32()).buffers()[1], pa.py_buffer(b"abcd")]
    )
    plain = pa.array([None, "d"])
    assert hash_columns([hidden], 2).tolist() == hash_columns([plain], 2).tolist()


def test_columns_are_checked() -> None:
    pair = Pair(("text",), None)
    places = pair.places([("a",)])
    with pytest.raises(ValueError, match="2 values for 1 places"):
        pair.table.put("count", places, np.array([1, 2]))
    with pytest.raises(ValueError, match="cannot be null"):
        pair.table.put("count", places, pa.array([None], pa.int64()))
    with pytest.raises(ValueError, match="cannot be null"):
        pair.table.put("name", places, pa.array([None], pa.string()))
    with pytest.raises(TypeError, match="use values"):
        pair.table.numbers("name", places)
    with pytest.raises(KeyError, match="no column 'other'"):
        pair.table.values("other", places)
    with pytest.raises(TypeError, match="no column of times"):
        pair.table.due("total", 0)
    assert arrow_schema(Kept).names == list(pair.table._columns)


def test_a_time_of_the_sub_key_may_be_due() -> None:
    pair = Pair(("text",), Start)
    keys = [("a", START + timedelta(hours=hour), "") for hour in (2, 0, 1)]
    pair.place(keys[:2])
    pair.place(keys[2:])
    due = pair.table.due("start", microseconds(START) + 3_600_000_000)
    assert pair.keys(pair.table.keys(due)) == [keys[1], keys[2]]
    pair.table.forget(due)
    assert len(pair.table.due("start", microseconds(START) + 3_600_000_000)) == 0
    pair.places([("b", START, "")])
    assert pair.keys(pair.table.keys(pair.table.due("start", microseconds(START)))) == [("b", START, "")]
