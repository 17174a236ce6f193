"""The results of joins, computed by DuckDB over the whole input at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from streamwork import Event

if TYPE_CHECKING:
    import duckdb

START = datetime(2026, 1, 1, tzinfo=UTC)


class Click(Event):
    user: str | None
    at: datetime
    page: int


class Purchase(Event):
    user: str | None
    at: datetime
    price: float | None


class Row(NamedTuple):
    """An event of a partition of an input; times are seconds."""

    input: str
    partition: int
    key: str | None
    time: int
    value: int

    @property
    def event(self) -> Click | Purchase:
        at = START + timedelta(seconds=self.time)
        if self.input == "left":
            return Click(self.key, at, self.value)
        return Purchase(self.key, at, None if self.value % 5 == 0 else float(self.value))


def seconds(at: datetime | None) -> int | None:
    return None if at is None else int((at - START).total_seconds())


class Oracle:
    """Rows of inputs `left` and `right` with `partitions` partitions each, in the order of their arrival.

    If they are `fused`, each instance reads one partition of both inputs, and nothing else: its watermark is that of these.
    """

    def __init__(self, duck: duckdb.DuckDBPyConnection, rows: list[Row], partitions: int, fused: bool = False) -> None:
        self._duck = duck
        table = pa.table(
            {
                "input": pa.array([row.input for row in rows], pa.string()),
                "part": pa.array([row.partition for row in rows], pa.int64()),
                "n": pa.array(range(len(rows)), pa.int64()),
                "k": pa.array([row.key for row in rows], pa.string()),
                "t": pa.array([row.time for row in rows], pa.int64()),
                "v": pa.array([row.value for row in rows], pa.int64()),
            }
        )
        self._duck.register("given", table)
        ends, count = ("partition by part", 2) if fused else ("", 2 * partitions)
        self._duck.execute(
            f"""create or replace temp table arrived as
                with ends as (select input, part, max(t) as t from given group by all),
                     least as (select part, min(t) over ({ends}) as m, count(*) over ({ends}) as n from ends)
                select given.*, max(t) over (partition by input, part order by given.n
                                             rows between unbounded preceding and 1 preceding) as w,
                       (select max(m) from least where least.part = given.part and least.n = {count}) as m
                from given"""
        )

    def within(self, how: str, distance: int, lateness: int = 0) -> list[tuple]:
        """(key, left time, left value, right time, right value)"""
        over = f"t + {2 * distance + lateness} <= m"
        pairs = "l.k = r.k and abs(l.t - r.t) <= $distance"
        parts = [f"select l.k, l.t, l.v, r.t, r.v from l join r on {pairs}"]
        if how in ("left", "full"):
            parts.append(f"select k, t, v, null, null from l where {over} and not exists (from r where {pairs})")
        if how in ("right", "full"):
            parts.append(f"select k, null, null, t, v from r where {over} and not exists (from l where {pairs})")
        in_time = f"(w is null or t + {distance + lateness} > w)"
        sql = f"""with l as (from arrived where input = 'left' and {in_time}),
                       r as (from arrived where input = 'right' and {in_time}) {" union all ".join(parts)}"""
        return self._duck.execute(sql.replace("$distance", str(distance))).fetchall()

    def late(self, side: str, chance: int, inclusive: bool = True) -> list[tuple]:
        """(key, time, value, late by), of rows whose last chance is their time + `chance`."""
        sign = "<=" if inclusive else "<"
        sql = f"select k, t, v, w - t - {chance} from arrived where input = '{side}' and t + {chance} {sign} w"
        return self._duck.execute(sql).fetchall()

    def as_of(self, how: str, lateness: int, table_lateness: int) -> list[tuple]:
        """(key, left time, left value, right time, right value)"""
        kind = "left" if how in ("left", "full") else ""
        parts = [f"select l.k, l.t, l.v, r.t, r.v from l asof {kind} join r on l.k = r.k and l.t >= r.t"]
        if how in ("right", "full"):
            met = "l.k = r.k and l.t >= r.t and l.t < r.until"
            over = f"r.until + {max(lateness, table_lateness)} < r.m"
            parts.append(f"select k, null, null, t, v from r where {over} and not exists (from l where {met})")
        sql = f"""with l as (from arrived where input = 'left' and (w is null or t + {lateness} >= w)
                             and t + {table_lateness} < m),
                       last as (from arrived where input = 'right' and (w is null or t + {table_lateness} >= w)
                                qualify n = max(n) over (partition by k, t)),
                       r as (select *, lead(t) over (partition by k order by t) as until from last)
                  {" union all ".join(parts)}"""
        return self._duck.execute(sql).fetchall()

    def windows(self, how: str, lateness: int) -> list[tuple]:
        """(key, left time, left value, end of the window, purchases in it): windows of ten seconds as versions from their end on"""
        kind = "left" if how == "left" else ""
        sql = f"""with l as (from arrived where input = 'left' and (w is null or t + {lateness} >= w) and t < m),
                       r as (select k, (t // 10 + 1) * 10 as e, count(*) as c from arrived where input = 'right'
                             and k is not null and (w is null or (t // 10 + 1) * 10 > w) group by all)
                  select l.k, l.t, l.v, r.e, r.c from l asof {kind} join r on l.k = r.k and l.t >= r.e"""
        return self._duck.execute(sql).fetchall()

    def both(self, lateness: int) -> list[tuple]:
        """(key, left time, left value, value of the newest right row, of the newest one above 8 that has a price)"""
        newest = "qualify n = max(n) over (partition by k, t)"
        right = "arrived where input = 'right' and (w is null or t >= w) and k is not null"
        sql = f"""with l as (from arrived where input = 'left' and (w is null or t + {lateness} >= w) and t < m),
                       r as (from {right} {newest}), s as (from {right} and v > 8 and v % 5 > 0 {newest})
                  select l.k, l.t, l.v, r.v, s.v from l asof left join r on l.k = r.k and l.t >= r.t
                  asof left join s on l.k = s.k and l.t >= s.t"""
        return self._duck.execute(sql).fetchall()
