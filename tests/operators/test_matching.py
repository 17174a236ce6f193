"""The algorithms of joins, compared with DuckDB."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamwork.operators.joins import matching

KEYS = st.one_of(st.none(), st.sampled_from(["a", "b", "c", ""]))
FAR = 2**50  # such times do not fit beside a code
TIMES = st.one_of(st.integers(-5, 20), st.sampled_from([FAR, FAR + 3, -FAR]))
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 1), TIMES), max_size=12)


def sides(left, right):
    tables = [
        pa.table(
            {
                "row": pa.array(range(len(rows)), pa.int64()),
                "name": pa.array([row[0] for row in rows], pa.string()),
                "number": pa.array([row[1] for row in rows], pa.int64()),
                "t": pa.array([row[2] for row in rows], pa.int64()),
            }
        )
        for rows in (left, right)
    ]
    codes = matching.codes_of(*([table["name"].combine_chunks(), table["number"].combine_chunks()] for table in tables))
    times = [table["t"].to_numpy() for table in tables]
    return tables, codes, times


def oracle(duck, tables, sql):
    for name, table in zip(("l", "r"), tables, strict=True):
        duck.register(name, table)
    return duck.execute(sql).fetchall()


@settings(max_examples=20, deadline=None)
@given(ROWS, ROWS)
def test_equal(duck, left, right):
    tables, codes, _ = sides(left, right)
    rows, others = matching.equal(*codes)
    expected = oracle(duck, tables, "select l.row, r.row from l join r using (name, number) order by all")
    assert list(zip(rows.tolist(), others.tolist(), strict=True)) == expected


@settings(max_examples=30, deadline=None)
@given(ROWS, ROWS, st.integers(0, 6))
def test_within(duck, left, right, distance):
    tables, codes, times = sides(left, right)
    rows, others = matching.within(codes[0], times[0], codes[1], times[1], distance)
    sql = f"""select l.row, r.row from l join r on l.name = r.name and l.number = r.number and abs(l.t - r.t) <= {distance}
              order by l.row, r.t, r.row"""
    assert list(zip(rows.tolist(), others.tolist(), strict=True)) == oracle(duck, tables, sql)


@settings(max_examples=30, deadline=None)
@given(ROWS, ROWS)
def test_as_of(duck, left, right):
    tables, codes, times = sides(left, right)
    found = matching.as_of(codes[0], times[0], codes[1], times[1])
    sql = """select l.row, coalesce(last.row, -1) from l asof left join
             (select name, number, t, max(row) as row from r group by all) last
             on l.name = last.name and l.number = last.number and l.t >= last.t order by l.row"""
    assert list(enumerate(found.tolist())) == oracle(duck, tables, sql)


@pytest.mark.parametrize("distance", [4, 6])
def test_a_bound_that_is_off_by_one_is_noticed(duck, distance):
    """A negative control: DuckDB's result differs."""
    left, right = [("a", 0, 0), ("a", 0, 10)], [("a", 0, 5), ("a", 0, 16)]
    tables, codes, times = sides(left, right)
    rows, others = matching.within(codes[0], times[0], codes[1], times[1], distance)
    expected = oracle(duck, tables, "select l.row, r.row from l join r on l.name = r.name and abs(l.t - r.t) <= 5")
    assert sorted(zip(rows.tolist(), others.tolist(), strict=True)) != sorted(expected)
