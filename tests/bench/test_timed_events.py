"""The inputs and the oracles of the benchmarks of windows and joins, compared with DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from streamwork.bench import join_oracle, window_oracle
from streamwork.bench.timed_events import BEGIN, DAY, TimedEvents, TimedStream, key_names

SECOND = 1_000_000
FIELDS = ("id", "key", "time", "quarters")


def events(seed: int, keys: int = 5, rows: int = 200, epochs: int = 2) -> TimedStream:
    stream = TimedStream(seed, keys, rows, 60 * SECOND, 2 * SECOND)
    for _ in range(epochs):
        stream.next()
    return stream


def table(found: TimedEvents) -> pa.Table:
    return pa.table(dict(zip(FIELDS, found, strict=True)))


def rows(found: Any) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in found), strict=True))


def test_times_advance_and_are_out_of_order_by_little() -> None:
    found = events(1).all()
    latest = np.maximum.accumulate(found.times)
    behind = latest - found.times
    assert 0 < behind.max() <= 2 * SECOND
    assert found.times.min() >= BEGIN and found.times.max() - found.times.min() > 110 * SECOND
    assert found.ids.tolist() == list(range(400))


def test_closing_events_come_a_day_later_in_both_instances() -> None:
    stream = events(1)
    one, other = stream.closing(0), stream.closing(1)
    assert one.keys.tolist() == [0, 1] and set(one.times) == {stream.closed_from}
    assert stream.closed_from - stream.all().times.max() >= DAY and set(other.times - one.times) == {DAY}
    names = key_names(100, "user", 2)
    assert len(set(names)) == 100


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("size", "slide"), [(10, 10), (10, 5), (7, 3)])
def test_windows(seed: int, size: int, slide: int) -> None:
    views = table(events(seed).all())  # noqa: F841 (DuckDB finds it by name)
    step, length = slide * SECOND, size * SECOND
    wanted = duckdb.sql(
        f"""select key, start, start + {length}, count(*), sum(quarters)::bigint
        from (select *, unnest(range((time - {length}) // {step} + 1, time // {step} + 1)) * {step} as start from views)
        group by all order by all"""
    ).fetchall()
    assert rows(window_oracle.sliding(events(seed).all(), length, step)) == wanted


@pytest.mark.parametrize("seed", range(3))
def test_sessions(seed: int) -> None:
    gap = 3 * SECOND
    found = events(seed).all()
    found = found._replace(times=found.times // 500_000 * 500_000)  # some are exactly a gap apart
    views = table(found)  # noqa: F841
    wanted = duckdb.sql(
        f"""with marked as (
            select *, coalesce(time - lag(time) over (partition by key order by time, id) > {gap}, true) as first from views
        ),
        numbered as (select *, sum(first::int) over (partition by key order by time, id rows unbounded preceding) as n from marked)
        select key, min(time), max(time) + {gap}, count(*), sum(quarters)::bigint from numbered group by key, n order by 1, 2"""
    ).fetchall()
    assert rows(window_oracle.session(found, gap)) == wanted
    assert rows(window_oracle.session(found, gap - 1)) != wanted, "the control: the edge counts"


@pytest.mark.parametrize("seed", range(3))
def test_pairs(seed: int) -> None:
    sides = events(seed).all(), events(seed + 100).all()
    one, other = (side._replace(times=side.times // SECOND * SECOND) for side in sides)
    left, right = table(one), table(other)  # noqa: F841
    wanted = duckdb.sql(
        f"""select l.id, r.id from "left" l join "right" r on l.key = r.key and abs(l.time - r.time) <= {3 * SECOND}
        order by 1, 2"""
    ).fetchall()
    assert rows(join_oracle.within(one, other, 3 * SECOND)) == wanted
    assert rows(join_oracle.within(one, other, 3 * SECOND - 1)) != wanted, "the control: the edge counts"
