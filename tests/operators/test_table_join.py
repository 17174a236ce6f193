"""Stream with tables: the version that is valid at the time of each row, compared with DuckDB's ASOF JOIN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.join_oracle import Click, Oracle, Purchase, Row, seconds
from operators.waves import Arriving, Input, Waves, key_of
from streamwork import WrongUse
from streamwork.components.times import microseconds
from streamwork.operators.joins.kinds import JoinKind
from streamwork.operators.joins.outer_table_join import OuterTableJoin
from streamwork.operators.joins.result import Side, result_of
from streamwork.operators.joins.table import TableOfStream
from streamwork.operators.joins.table_join import TableJoin, TimedTableJoin

SECOND = 1_000_000
LEFT, RIGHT = Side("clicks", Click, ("user",)), Side("quotes", Purchase, ("user",))
PARTITIONS = 2
KEYS = [None, "a", "b", "c"]
HOME = {None: 0, "a": 0, "b": 1, "c": 1}  # versions of one key come from one partition
ROWS = st.builds(
    lambda side, part, key, time, value: Row(side, part if side == "left" else HOME[key], key, time, value),
    st.sampled_from(["left", "right"]),
    st.integers(0, PARTITIONS - 1),
    st.sampled_from(KEYS),
    st.integers(0, 30),
    st.integers(0, 9),
)


def chain(how: str, history: int = 0, lateness: int | None = None, table_lateness: int = 0) -> Waves:
    table = TableOfStream(RIGHT, "at", history * SECOND, table_lateness * SECOND)
    kind = JoinKind.known(how)
    late = history if lateness is None else lateness
    operator = OuterTableJoin if kind.keeps_right else TimedTableJoin
    join = operator(LEFT, [table], kind, result_of([LEFT, RIGHT], kind, "priced"), "at", late * SECOND)
    inputs = {"left": Input("at", PARTITIONS, "join"), "right": Input("at", PARTITIONS, "quotes")}
    return Waves(
        {"quotes": table, "join": join}, {"quotes": key_of(Purchase, "user"), "join": key_of(Click, "user")}, inputs
    )


def run(ran: Waves, rows: list[Row], cuts: list[int]) -> Waves:
    return ran.run([Arriving(row.input, row.partition, row.event) for row in rows], cuts)


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def joined(ran: Waves) -> list[tuple[Any, ...]]:
    return ordered((e.user, seconds(e.at), e.page, seconds(e.quotes_at), e.price) for e in ran.of("join"))


def priced(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return ordered((*row[:4], None if row[4] is None or row[4] % 5 == 0 else float(row[4])) for row in rows)


@settings(max_examples=50)
@given(
    st.lists(ROWS, max_size=30),
    st.lists(st.integers(0, 5), max_size=4).filter(lambda cuts: not cuts or any(cuts)),
    st.sampled_from(["inner", "left", "right", "full"]),
    st.integers(0, 8),
    st.integers(0, 4),
)
def test_it_gives_what_duckdb_gives(duck, rows, cuts, how, history, table_lateness):
    ran = run(chain(how, history, None, table_lateness), rows, cuts)
    oracle = Oracle(duck, rows, PARTITIONS)
    assert joined(ran) == priced(oracle.as_of(how, history, table_lateness))
    late = [(e.user, seconds(e.at), e.page, e.late_by) for e in ran.of("join", "late")]
    assert ordered(late) == ordered(oracle.late("left", history, inclusive=False))
    late = [(e.user, seconds(e.at), e.late_by) for e in ran.of("quotes", "late")]
    expected = [(key, time, by) for key, time, _, by in oracle.late("right", table_lateness, inclusive=False)]
    assert ordered(late) == ordered(expected)


def test_rows_and_versions_of_a_partition_that_was_idle_may_be_late():
    ran = chain("inner", history=5)
    ran.idle = {("left", 1), ("right", 1)}
    rows = [Row("right", 0, "a", 1, 1), Row("left", 1, "z", 1, 1), Row("right", 1, "z", 1, 1)]
    rows += [Row("left", 0, "a", 20, 1), Row("right", 0, "a", 20, 2)]
    rows += [Row("left", 1, "a", 14, 2), Row("left", 1, "a", 15, 3), Row("right", 1, "a", 19, 3)]
    run(ran, rows, [1])
    assert [(seconds(e.at), e.late_by, e.late_reason) for e in ran.of("join", "late")] == [(14, 1.0, "idle")]
    assert [(seconds(e.at), e.late_by, e.late_reason) for e in ran.of("quotes", "late")] == [(19, 1.0, "idle")]
    assert [(seconds(e.at), e.price) for e in ran.of("join")] == [(1, 1.0), (15, 1.0)]


def steady(count: int) -> list[Row]:
    sides = [(side, partition) for side in ("left", "right") for partition in range(PARTITIONS)]
    return [Row(side, part, "ab"[part], time, 1) for time in range(count) for side, part in sides]


@pytest.mark.parametrize("how", ["left", "full"])
def test_versions_and_rows_are_kept_no_longer_than_they_are_needed(how):
    ran = chain(how, history=5)
    rows = steady(40)
    for start in range(0, len(rows), 4):
        ran.wave([Arriving(row.input, row.partition, row.event) for row in rows[start : start + 4]])
        ran.checkpoint()
        marks = 2 * 8 if how == "full" else 0  # about versions that the table has
        assert len(ran.states["join"]) <= 2 + marks  # those of the last second
        assert len(ran.states["quotes"]) <= 2 * 8
    last = ran.states["quotes"]
    assert {"a", "b"} == set(last.values("user", last.places()).to_pylist())


QUOTES = [Row("right", 0, "a", time, time) for time in (1, 3)] + [Row("right", 1, "b", 9, 1)]
TRADES = [Row("left", 0, "a", 2, 1), Row("left", 1, "b", 9, 1), Row("left", 0, "z", 9, 1), Row("right", 0, "z", 9, 1)]


def test_a_version_that_is_forgotten_too_early_is_noticed(duck):
    """A negative control: with history, a row far behind the watermark finds its version."""
    rows = [
        *QUOTES,
        *TRADES,
        *(Row(s, p, "z", 12, 1) for s in ("left", "right") for p in (0, 1)),
        Row("left", 0, "a", 2, 7),
    ]
    expected = priced(Oracle(duck, rows, PARTITIONS).as_of("inner", 10, 0))
    assert joined(run(chain("inner", history=10), rows, [1])) == expected
    early = chain("inner", history=0, lateness=10)
    assert joined(run(early, rows, [1])) != expected


@settings(max_examples=20)
@given(st.lists(ROWS, max_size=30), st.integers(1, 6), st.integers(0, 8), st.integers(0, 4))
def test_a_version_is_emitted_once_over_restarts(duck, rows, cut, history, table_lateness):
    ran = chain("full", history, None, table_lateness)
    for start in range(0, len(rows), cut):
        run(ran, rows[start : start + cut], [])
        ran.restart()
    assert joined(ran) == priced(Oracle(duck, rows, PARTITIONS).as_of("full", history, table_lateness))


def test_a_version_that_is_over_too_early_is_noticed(duck):
    """A negative control: a late row meets a version that was given up for unmatched."""
    begin = [Row(s, p, "z", 1, 1) for s in ("left", "right") for p in (0, 1)]
    ends = [Row(s, p, "z", 12, 1) for s in ("left", "right") for p in (0, 1)]
    rows = [*begin, Row("right", 0, "a", 2, 1), Row("right", 0, "a", 5, 2), *ends, Row("left", 0, "a", 3, 1)]
    expected = priced(Oracle(duck, rows, PARTITIONS).as_of("full", 9, 0))
    assert joined(run(chain("full", history=9), rows, [1])) == expected
    early = chain("full", history=9)
    given = early.operators["join"].on_time

    def hasty(clock, time, state, tables, collector):
        given(clock, time + 4 * SECOND, state, tables, collector)

    early.operators["join"].on_time = hasty
    assert joined(run(early, rows, [1])) != expected


def test_a_row_that_does_not_wait_is_noticed(duck):
    """A negative control: a row that meets the table on arrival misses the version that comes behind it."""
    rows = [Row("right", 0, "a", 1, 1), Row("left", 0, "a", 5, 1), Row("right", 0, "a", 4, 2)]
    rows += [Row(s, p, "z", 9, 1) for s in ("left", "right") for p in (0, 1)]
    expected = priced(Oracle(duck, rows, PARTITIONS).as_of("inner", 0, 0))
    assert joined(run(chain("inner"), rows, [1])) == expected
    hasty = chain("inner")
    hasty.operators["join"]._wait = -10 * SECOND
    assert joined(run(hasty, rows, [1])) != expected


def test_without_event_time_a_row_meets_the_newest_version():
    table = TableOfStream(RIGHT, None)
    kind = JoinKind.LEFT
    join = TableJoin(LEFT, [table], kind, result_of([LEFT, RIGHT], kind, "priced"))
    inputs = {"left": Input("at", 1, "join"), "right": Input("at", 1, "quotes")}
    ran = Waves({"quotes": table, "join": join}, {"quotes": key_of(Purchase, "user")}, inputs)
    rows = [
        Row("left", 0, "a", 9, 1),
        Row("right", 0, "a", 5, 1),
        Row("right", 0, "a", 3, 2),
        Row("left", 0, "a", 1, 2),
        Row("right", 0, None, 3, 3),
        Row("left", 0, None, 1, 3),
    ]
    run(ran, rows, [1])
    assert [(e.user, e.page, e.price) for e in ran.of("join")] == [("a", 1, None), ("a", 2, 2.0), (None, 3, None)]
    assert len(ran.states["quotes"]) == 1


def test_a_table_of_time_that_is_joined_on_arrival_gives_its_newest_version():
    table = TableOfStream(RIGHT, "at", 10 * SECOND, 10 * SECOND)
    join = TableJoin(LEFT, [table], JoinKind.INNER, result_of([LEFT, RIGHT], JoinKind.INNER, "priced"))
    inputs = {"left": Input("at", 1, "join"), "right": Input("at", 1, "quotes")}
    ran = Waves({"quotes": table, "join": join}, {"quotes": key_of(Purchase, "user")}, inputs)
    run(ran, [Row("right", 0, "a", 5, 1), Row("right", 0, "a", 3, 2), Row("left", 0, "a", 1, 1)], [1])
    assert [(e.page, e.price) for e in ran.of("join")] == [(1, 1.0)]


def test_a_version_ends_where_the_next_one_begins():
    table = TableOfStream(RIGHT, "at", 10 * SECOND, 10 * SECOND)
    ran = Waves({"quotes": table}, {"quotes": key_of(Purchase, "user")}, {"right": Input("at", 1, "quotes")})
    run(ran, [Row("right", 0, "a", time, time) for time in (5, 9, 7, 7)], [1])
    state = ran.states["quotes"]
    places = state.places()
    begins, ends = (seconds_of(state.numbers(name, places)) for name in ("valid_from", "valid_until"))
    assert sorted(zip(begins, ends, strict=True))[:2] == [(5, 7), (7, 9)]
    assert len(places) == 3 and max(ends) > 10**9
    at = dict(zip(begins, state.values("price", places).to_pylist(), strict=True))
    assert at[7] == 7.0


def seconds_of(times: np.ndarray[Any, Any]) -> list[int]:
    from operators.join_oracle import START

    return ((times.view(np.int64) - microseconds(START)) // SECOND).tolist()


def test_a_field_that_is_named_like_a_column_of_the_state_is_refused():
    from streamwork import Event

    class Strange(Event):
        user: str
        valid_until: int

    with pytest.raises(WrongUse, match="SW-KEY-CLASH.*valid_until"):
        TableOfStream(Side("strange", Strange, ("user",)), None)
