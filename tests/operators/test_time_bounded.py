"""Stream with stream within a bound: compared with DuckDB, however the input is cut into waves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.join_oracle import Click, Oracle, Purchase, Row, seconds
from operators.waves import Arriving, Input, Waves, key_of
from streamwork.operators.joins.kinds import JoinKind
from streamwork.operators.joins.result import Side, result_of
from streamwork.operators.joins.time_bounded import TimeBoundedJoin

SECOND = 1_000_000
SIDES = (Side("clicks", Click, ("user",)), Side("purchases", Purchase, ("user",)))
PARTITIONS = 2
ROWS = st.builds(
    Row,
    st.sampled_from(["left", "right"]),
    st.integers(0, PARTITIONS - 1),
    st.one_of(st.none(), st.sampled_from(["a", "b", "c"])),
    st.integers(0, 30),
    st.integers(0, 3),
)
KINDS = st.sampled_from(["inner", "left", "right", "full"])
CUTS = st.lists(st.integers(0, 5), max_size=4).filter(lambda cuts: not cuts or any(cuts))


def operator(how: str, within: int, lateness: int = 0) -> TimeBoundedJoin:
    kind = JoinKind.known(how)
    return TimeBoundedJoin(
        SIDES, ("at", "at"), kind, result_of(SIDES, kind, "attribution"), within * SECOND, lateness * SECOND
    )


def waves(join: TimeBoundedJoin) -> Waves:
    inputs = {"left": Input("at", PARTITIONS, "join"), "right": Input("at", PARTITIONS, "join", "right")}
    return Waves({"join": join}, {"join": key_of(Click, "user")}, inputs)


def run(join: TimeBoundedJoin, rows: list[Row], cuts: list[int]) -> Waves:
    return waves(join).run([Arriving(row.input, row.partition, row.event) for row in rows], cuts)


def joined(ran: Waves) -> list[tuple[Any, ...]]:
    return ordered((e.user, seconds(e.at), e.page, seconds(e.purchases_at), e.price) for e in ran.of("join"))


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def priced(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The oracle's rows with prices for the values of the right side."""
    return ordered((*row[:4], None if row[4] is None or row[4] % 5 == 0 else float(row[4])) for row in rows)


@settings(max_examples=40)
@given(st.lists(ROWS, max_size=30), CUTS, KINDS, st.integers(0, 6), st.integers(0, 5))
def test_it_gives_what_duckdb_gives(duck, rows, cuts, how, within, lateness):
    ran = run(operator(how, within, lateness), rows, cuts)
    oracle = Oracle(duck, rows, PARTITIONS)
    assert joined(ran) == priced(oracle.within(how, within, lateness))
    late = [(e.user, seconds(e.at), e.page, e.late_by) for e in ran.of("join", "late")]
    assert ordered(late) == ordered(oracle.late("left", within + lateness))
    found = [(e.user, seconds(e.at), e.late_by, e.late_reason) for e in ran.of("join", "late-right")]
    expected = [(key, time, by, "late") for key, time, _, by in oracle.late("right", within + lateness)]
    assert ordered(found) == ordered(expected)


def test_rows_of_a_partition_that_was_idle_are_late_if_what_they_match_may_be_forgotten():
    ran = waves(operator("inner", 5))
    ran.idle = {("right", 1)}
    begin = [("left", 0), ("left", 1), ("right", 0)]
    rows = [Row(side, part, "a", time, 1) for time in (10, 30) for side, part in begin]
    woken = [Row("right", 1, "a", time, 1) for time in (24, 25, 26)]
    for row in [Row("right", 1, "z", 1, 1), *rows, *woken]:
        ran.wave([Arriving(row.input, row.partition, row.event)])
    late = [(seconds(e.at), e.late_by, e.late_reason) for e in ran.of("join", "late-right")]
    assert late == [(24, 1.0, "idle"), (25, 0.0, "idle")]
    assert [seconds(e.purchases_at) for e in ran.of("join")].count(26) == 2


def steady(count: int) -> list[Row]:
    """Both inputs in order, one row a second from each partition."""
    sides = [(side, partition) for side in ("left", "right") for partition in range(PARTITIONS)]
    return [Row(side, part, "ab"[time % 2], time, 1) for time in range(count) for side, part in sides]


@pytest.mark.parametrize("how", ["inner", "full"])
def test_rows_are_kept_no_longer_than_they_can_match(how):
    ran = waves(operator(how, 3, 2))
    rows = steady(60)
    for start in range(0, len(rows), 4):
        ran.wave([Arriving(row.input, row.partition, row.event) for row in rows[start : start + 4]])
        kept = ran.states["join"]
        oldest = kept.earliest("join_time")
        assert oldest is None or oldest > ran.minimum - 8 * SECOND
        assert len(kept) <= 4 * 8


WRONG = [
    Row("left", 0, "a", 10, 1),
    Row("right", 0, "a", 15, 1),
    Row("left", 0, "a", 30, 1),
    Row("right", 0, "a", 30, 1),
]
ENDS = [Row(side, 1, "z", time, 1) for time in (10, 30) for side in ("left", "right")]


def test_a_bound_that_is_off_by_one_is_noticed(duck):
    """A negative control."""
    rows = WRONG[:2] + ENDS + WRONG[2:]
    assert joined(run(operator("full", 5), rows, [1])) == priced(Oracle(duck, rows, PARTITIONS).within("full", 5))
    assert joined(run(operator("full", 4), rows, [1])) != priced(Oracle(duck, rows, PARTITIONS).within("full", 5))


def test_lateness_that_is_ignored_is_noticed(duck):
    """A negative control."""
    rows = [Row("left", 0, "a", 20, 1), Row("left", 0, "a", 5, 2), Row("right", 0, "a", 5, 3), *ENDS]
    expected = priced(Oracle(duck, rows, PARTITIONS).within("inner", 5))
    assert joined(run(operator("inner", 5), rows, [1])) == expected
    join = operator("inner", 5)
    join._lateness = 100 * SECOND
    assert joined(run(join, rows, [1])) != expected


def test_rows_that_are_forgotten_one_step_too_early_are_noticed(duck):
    """A negative control: a row is forgotten at its time + 2 within + lateness, and not a microsecond before."""
    rows = [
        Row("left", 0, "a", 10, 1),
        *(Row(side, part, "z", 19, 1) for side, part in (("left", 0), ("left", 1), ("right", 0), ("right", 1))),
        Row("right", 1, "a", 15, 2),  # in time: 15 + 5 > 19
    ]
    expected = priced(Oracle(duck, rows, PARTITIONS).within("inner", 5))
    assert any(row[0] == "a" for row in expected)
    assert joined(run(operator("inner", 5), rows, [1])) == expected
    early = operator("inner", 5)
    due = type(early).on_time

    def too_early(self, clock, time, state, tables, collector):
        due(self, clock, time + SECOND, state, tables, collector)

    early.on_time = too_early.__get__(early)
    assert joined(run(early, rows, [1])) != expected


def test_the_state_has_the_columns_of_both_sides():
    join = operator("full", 5)
    assert list(join.types()[1].__struct_fields__) == ["matched", "join_watermark", "left_page", "right_price"]
