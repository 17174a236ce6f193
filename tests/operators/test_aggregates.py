"""Aggregates on columns equal those of DuckDB, wherever the events are divided into parts."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.windows.oracle import database
from streamwork import Digits, Event, JobFailed, Record, WrongUse
from streamwork.components.columns import python_values, to_batch
from streamwork.components.schema import fields_of
from streamwork.operators.aggregates import (
    Aggregate,
    ColumnAggregate,
    Unbound,
    approx_distinct_of,
    collect_of,
    count,
    distinct_of,
    first_of,
    last_of,
    max_of,
    mean_of,
    min_of,
    quantile_of,
    sum_of,
)
from streamwork.operators.aggregates.columns import Groups, Parts, running, stacked, take

START = datetime(2026, 1, 1, tzinfo=UTC)


class Seen(Event):
    group: int
    number: int
    some: int | None
    value: float
    other: float | None
    price: Annotated[Decimal, Digits(12, 2)] | None
    name: str
    note: str | None
    at: datetime
    day: date | None
    flag: bool


def seen(group: int, number: int, maybe: bool, text: str) -> Seen:
    value = number / 4
    return Seen(
        group,
        number,
        number if maybe else None,
        value,
        -value if maybe else None,
        Decimal(number) / 100 if maybe else None,
        text,
        text if maybe else None,
        START + timedelta(seconds=number),
        date(2026, 1, 1 + abs(number) % 20) if maybe else None,
        maybe,
    )


EVENTS = st.lists(
    st.builds(
        seen, st.integers(0, 4), st.integers(-1000, 1000), st.booleans(), st.sampled_from(["", "a", "ä", "b", "zz"])
    ),
    min_size=1,
    max_size=40,
)

CASES: dict[str, tuple[Unbound, str]] = {
    "count": (count(), "count(*)"),
    "count some": (count("some"), 'count("some")'),
    **{f"sum {f}": (sum_of(f), f'sum("{f}")') for f in ("number", "some", "value", "other", "price")},
    **{f"mean {f}": (mean_of(f), f'avg("{f}")') for f in ("number", "some", "value", "other", "price")},
    **{
        f"{what} {f}": (of(f), f'{what}("{f}")')
        for f in ("number", "some", "value", "other", "price", "name", "note", "at", "day", "flag")
        for what, of in (("min", min_of), ("max", max_of))
    },
    **{f"first {f}": (first_of(f), f'first("{f}" order by row)') for f in ("number", "other", "note", "at")},
    **{f"last {f}": (last_of(f), f'last("{f}" order by row)') for f in ("number", "other", "note", "price")},
    **{f"collect {f}": (collect_of(f), f'list("{f}" order by row)') for f in ("number", "note", "at")},
    **{
        f"distinct {f}": (distinct_of(f), f'count(distinct "{f}")') for f in ("number", "note", "price", "day", "other")
    },
    **{
        f"approximate {f}": (approx_distinct_of(f), f'count(distinct "{f}")')
        for f in ("number", "note", "price", "day")
    },
}


def bound(case: str, interleaved: bool = False) -> ColumnAggregate:
    return CASES[case][0].bind(Seen, "x", interleaved)


def wanted(case: str, events: list[Seen]) -> dict[int, Any]:
    table = pa.Table.from_batches([to_batch(Seen, events, "test")]).append_column("row", pa.array(range(len(events))))
    database().register("seen", table)
    return dict(database().execute(f'select "group", {CASES[case][1]} from seen group by "group"').fetchall())


def codes_of(batch: pa.RecordBatch) -> tuple[np.ndarray[Any, Any], list[int]]:
    encoded = batch.column("group").dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


def results(aggregate: ColumnAggregate, parts: Parts, groups: list[int]) -> dict[int, Any]:
    found = aggregate.result(parts)
    assert found.type == aggregate.result_field.arrow
    return dict(zip(groups, python_values(aggregate.result_field, found), strict=True))


def in_pieces(aggregate: ColumnAggregate, events: list[Seen], cuts: list[int]) -> dict[int, Any]:
    """Partials of pieces, combined."""
    ends = sorted({0, *(cut % (len(events) + 1) for cut in cuts), len(events)})
    several, groups = [], []
    for start, end in pairwise(ends):
        batch = to_batch(Seen, events[start:end], "test")
        codes, mine = codes_of(batch)
        several.append(aggregate.partial(batch, Groups(codes.astype(np.int64), len(mine))))
        groups += mine
    encoded = pa.array(groups).dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    combined = aggregate.combine(stacked(several), Groups(codes, len(encoded.dictionary)))
    return results(aggregate, combined, encoded.dictionary.to_pylist())


def one_by_one(aggregate: ColumnAggregate, events: list[Seen]) -> dict[int, Any]:
    """The last of the running results."""
    batch = to_batch(Seen, events, "test")
    codes, mine = codes_of(batch)
    order = np.argsort(codes, kind="stable")
    single = aggregate.partial(batch, Groups(np.arange(len(events)), len(events)))
    groups = Groups(codes[order], len(mine))
    return results(aggregate, take(running(take(single, order), groups, aggregate.merge), groups.lasts), mine)


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float | Decimal) and isinstance(found, float):
        return math.isclose(found, float(expected), rel_tol=1e-12, abs_tol=1e-12)
    if isinstance(found, list):
        return all(same(a, b) for a, b in zip(found, expected, strict=True))
    return bool(found == expected)


@pytest.mark.parametrize("case", CASES)
@given(events=EVENTS, cuts=st.lists(st.integers(0, 40), max_size=4))
@settings(max_examples=6, deadline=None)
def test_aggregates_equal_those_of_duckdb(case: str, events: list[Seen], cuts: list[int]) -> None:
    aggregate, expected = bound(case), wanted(case, events)
    for found in (in_pieces(aggregate, events, cuts), one_by_one(aggregate, events)):
        assert found.keys() == expected.keys()
        assert all(same(found[group], expected[group]) for group in expected), (found, expected)


def test_a_wrong_merge_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the left part is lost."""
    aggregate = bound("sum number")
    monkeypatch.setattr(type(aggregate), "merge", lambda self, left, right: right)
    events = [seen(1, 2, True, "a"), seen(1, 3, True, "a")]
    assert one_by_one(aggregate, events) != wanted("sum number", events)


class Number(Event):
    group: int
    value: int
    real: float


@pytest.mark.parametrize("numbers", [[2**62, 2**62], [-(2**63), -1], [2**63 - 1, 1], [2**62] * 2 + [-1]])
def test_a_sum_of_ints_never_wraps(numbers: list[int]) -> None:
    aggregate = sum_of("value").bind(Number, "x", False)
    batch = to_batch(Number, [Number(0, n, 0.0) for n in numbers], "test")
    total = sum(numbers)
    groups = Groups(np.zeros(len(numbers), np.int64), 1)
    if -(2**63) <= total < 2**63:
        assert aggregate.result(aggregate.partial(batch, groups)).to_pylist() == [total]
        return
    with pytest.raises(JobFailed, match="SW-WINDOW-OVERFLOW"):
        aggregate.partial(batch, groups)
    single = aggregate.partial(batch, Groups(np.arange(len(numbers)), len(numbers)))
    with pytest.raises(JobFailed, match="SW-WINDOW-OVERFLOW"):
        aggregate.merge(take(single, np.array([0])), take(single, np.array([1])))


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_large_ints_are_added_exactly(numbers: list[int]) -> None:
    aggregate = sum_of("value").bind(Number, "x", False)
    batch = to_batch(Number, [Number(0, n, 0.0) for n in numbers], "test")
    try:
        found = aggregate.result(aggregate.partial(batch, Groups(np.zeros(len(numbers), np.int64), 1))).to_pylist()
    except JobFailed:
        found = None
    total = sum(numbers)
    assert found == ([total] if -(2**63) <= total < 2**63 else None)


def test_nan_is_larger_than_every_number() -> None:
    nan = float("nan")
    batch = to_batch(Number, [Number(0, 0, x) for x in (nan, 1.0, 2.0, nan)], "test")
    for codes, low, high in (([0, 0, 0, 0], [1.0], [nan]), ([0, 1, 1, 0], [nan, 1.0], [nan, 2.0])):
        groups = Groups(np.array(codes), max(codes) + 1)
        for of, expected in ((min_of, low), (max_of, high)):
            aggregate = of("real").bind(Number, "x", False)
            found = aggregate.result(aggregate.partial(batch, groups)).to_pylist()
            assert str(found) == str(expected)


def test_quantiles_are_near_the_true_ones() -> None:
    numbers = np.random.default_rng(1).random(20_000)
    aggregate = quantile_of("real", 0.9).bind(Number, "x", False)
    batch = pa.record_batch({"real": numbers})
    parts = aggregate.partial(batch, Groups(np.arange(20_000) // 100, 200))
    (found,) = aggregate.result(aggregate.combine(parts, Groups(np.zeros(200, np.int64), 1))).to_pylist()
    assert abs((numbers < found).mean() - 0.9) < 0.02


def test_approximate_distinct_counts_do_not_depend_on_the_parts() -> None:
    aggregate = approx_distinct_of("value").bind(Number, "x", False)
    values = np.random.default_rng(1).integers(0, 30_000, 40_000)
    found = set()
    for size in (40_000, 10_000, 777):
        batch = pa.record_batch({"value": values})
        codes = np.arange(40_000) // size
        parts = aggregate.partial(batch, Groups(codes, int(codes.max()) + 1))
        merged = aggregate.combine(parts, Groups(np.zeros(int(codes.max()) + 1, np.int64), 1))
        found.add(aggregate.result(merged).to_pylist()[0])
    (one,) = found
    assert abs(one - len(set(values.tolist()))) < 0.05 * one


class Bounds(Record):
    low: int = 0
    high: int = 0


class Range(Aggregate[Number, Bounds, int]):
    def create(self) -> Bounds:
        return Bounds(10**9, -(10**9))

    def add(self, state: Bounds, event: Number) -> Bounds:
        return Bounds(min(state.low, event.value), max(state.high, event.value))

    def merge(self, left: Bounds, right: Bounds) -> Bounds:
        return Bounds(min(left.low, right.low), max(left.high, right.high))

    def result(self, state: Bounds) -> int:
        return state.high - state.low


class ColumnSum(Aggregate[Number, int, int]):
    pure = True

    def add_batch(self, batch: pa.RecordBatch, codes: Any, count: int) -> pa.Array:
        return pa.array(np.bincount(codes, batch.column("value").to_numpy(), count).astype(np.int64))

    def merge_batch(self, left: pa.Array, right: pa.Array) -> pa.Array:
        return pa.array(left.to_numpy() + right.to_numpy())

    def result_batch(self, states: pa.Array) -> pa.Array:
        return states


@pytest.mark.parametrize(("given_", "expected"), [(Range(), [9, 0]), (ColumnSum(), [12, 7])])
def test_a_user_defines_an_aggregate(given_: Unbound, expected: list[int]) -> None:
    aggregate = given_.bind(Number, "x", False)
    batch = to_batch(Number, [Number(0, n, 0.0) for n in (1, 7, 10, 1)], "test")
    parts = aggregate.partial(batch, Groups(np.array([0, 1, 2, 0]), 3))
    combined = aggregate.combine(parts, Groups(np.array([0, 1, 0]), 2))
    assert aggregate.result(combined).to_pylist() == expected


@pytest.mark.parametrize(
    "wrong",
    [
        sum_of("prize"),
        sum_of("name"),
        mean_of("at"),
        quantile_of("price", 0.5),
        quantile_of("value", 2),
        distinct_of("nothing"),
        count("nothing"),
        Range(),
    ],
)
def test_fields_that_do_not_fit_are_refused(wrong: Unbound) -> None:
    with pytest.raises(WrongUse, match="SW-WINDOW-FIELD"):
        wrong.bind(Seen, "x", False)


def test_all_kinds_of_fields_were_tried() -> None:
    assert set(fields_of(Seen)) - {"group"} <= {case.split()[-1] for case in CASES}
