"""`Table` against a plain dict: random calls, keys of every type, hashes that collide."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamwork import Record
from streamwork.components.hashing import hash_columns
from streamwork.components.schema import arrow_schema, fields_of
from streamwork.components.times import microseconds
from streamwork.state import key_index, table_columns, text_column
from table_pair import KEYS, PUT, START, STARTS, VALUES, Kept, Keyed, Pair, Start, few_hashes


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
    pair = Pair(key, Start if sub else None, few_hashes if collide else None)
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
    monkeypatch.setattr(text_column, "_same_words", lambda some, others: np.ones(len(some), bool))
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
    assert len(table._rows._index._slots) <= 16 * len(keys)


def test_a_full_index_finds_and_misses() -> None:
    """Many keys, in batches of all sizes, with hashes that share their low bits."""
    rng, index = np.random.default_rng(2), key_index.KeyIndex()
    keys = rng.permutation(600).astype(np.uint64) << np.uint64(20) | np.uint64(5)
    known: dict[int, int] = {}
    stored = np.zeros(600, np.uint64)

    def among(asked: Any) -> Any:
        return lambda rows, places: stored[places] == (asked if rows is None else asked[rows])

    at = 0
    while at < len(keys):
        size = int(rng.integers(1, 90))
        some = keys[at : at + size]
        some = np.concatenate([some, some[: size // 2]])
        assert (index.find(some, among(some)) == -1).all()
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
    found = index.find(keys, among(keys))
    assert found.tolist() == [known[key] for key in keys.tolist()]
    assert len(index) == len(known) == 600


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


def test_a_column_of_floats_is_numpy() -> None:
    class Sums(Record):
        total: float = 0.5

    column = table_columns.column_of(fields_of(Sums)["total"])
    assert not isinstance(column, table_columns.ArrowColumn)


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


def test_text_beyond_its_words_is_told_apart() -> None:
    """Sizes around the limits of words, values with one beginning, trailing zeros, columns that widen while they hold rows."""
    pair = Pair(("text",), None, few_hashes)
    texts = [
        "",
        "\0",
        "\0\0",
        *("x" * size + end for size in (6, 7, 8, 15, 23, 30, 31, 32, 40) for end in ("", "\0", "y")),
    ]
    for at in range(0, len(texts), 3):
        pair.place([(text,) for text in texts[at : at + 3]])
        pair.find([(text,) for text in texts])
    pair.check()


def test_a_null_is_due_before_the_text_with_its_bytes() -> None:
    for keys in ([(None,), (b"\0",)], [(b"\0",), (None,)]):
        pair = Pair(("raw",), None)
        pair.place(keys)
        pair.due("due", START)
