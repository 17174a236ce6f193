"""The oracle of windows: DuckDB over the whole input. And random inputs for it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from streamwork import (
    Event,
    Fixed,
    FixedCount,
    Session,
    Sliding,
    SlidingCount,
    collect_of,
    count,
    distinct_of,
    first_of,
    last_of,
    max_of,
    mean_of,
    min_of,
    sum_of,
)
from streamwork.components import Key
from streamwork.components.keys import instance_of
from streamwork.components.times import microseconds
from streamwork.operators.windows import Window

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
EXAMPLES = 2
"""Random cases of each quick test; `test_windows.test_many_cases` has more."""


class Seen(Event):
    key: str | None
    number: int
    value: float | None
    at: datetime


class Summary(Event):
    """The result of a window, but for the columns that say which window it is."""

    key: str | None
    events: int
    total: int
    mean: float | None
    low: float | None
    high: datetime
    distinct: int


class TimeSummary(Summary):
    window_start: datetime
    window_end: datetime


class CountSummary(Summary):
    window_number: int


class Everything(Event):
    window_start: datetime
    window_end: datetime
    total: int


class Ordered(Event):
    """Aggregates that depend on the order of events."""

    key: str | None
    window_start: datetime
    window_end: datetime
    first: int
    last: float | None
    all: list[int]


AGGREGATES = {
    "events": count(),
    "total": sum_of("number"),
    "mean": mean_of("value"),
    "low": min_of("value"),
    "high": max_of("at"),
    "distinct": distinct_of("value"),
}
SQL = {
    "events": "count(*)",
    "total": "sum(number)::bigint",
    "mean": "avg(value)",
    "low": "min(value)",
    "high": 'max("at")',
    "distinct": "count(distinct value)",
    "first": "first(number order by row)",
    "last": "last(value order by row)",
    "all": "list(number order by row)",
}
ORDERED = {"first": first_of("number"), "last": last_of("value"), "all": collect_of("number")}


@dataclass(frozen=True)
class Case:
    """A window over some input."""

    window: Window
    lateness: int = 0  # seconds
    partitions: int = 1
    key: str | None = "key"
    by_key: bool = False  # partitioned by the key, not in turns
    fused: bool = False  # by the key, with as many instances: a window closes by its own partition


def random_events(seed: int, size: int, keys: int, disorder: int, base: int = 0) -> list[Seen]:
    """Times that mostly grow, some of them far behind; duplicates; nulls."""
    rng, found, now = random.Random(seed), [], base
    for number in range(size):
        now += rng.choice([0, 0, 1, 1, 2, 9])
        behind = rng.choice([0, 0, 0, rng.randint(0, disorder)])
        key = rng.choice([f"k{rng.randrange(keys)}", "k0"]) if rng.random() < 0.9 else None
        value = rng.choice([None, 0.25, 0.5, 1.0, 4.0])
        found.append(Seen(key, number, value, START + timedelta(seconds=now - behind)))
        if rng.random() < 0.1:
            found.append(found[-1])
    return found


@cache
def database() -> duckdb.DuckDBPyConnection:
    """One for all cases: a connection takes longer than a query."""
    found = duckdb.connect(config={"threads": 1})
    found.execute("set timezone = 'UTC'")
    return found


def partition_of(case: Case, number: int, event: Seen) -> int:
    """Of the event of this number: in turns, or by key."""
    if not (case.fused or case.by_key):
        return number % case.partitions
    (group,) = Key.of(Seen, "key").groups([event.key])
    return instance_of(group, case.partitions)


class Oracle:
    """What a job must give for an input; items are spread over partitions in turns."""

    def __init__(self, case: Case, events: Sequence[Seen]) -> None:
        self.case = case
        self._db = database()
        rows = [
            (n, partition_of(case, n, e), e.key if case.key else "", e.number, e.value, microseconds(e.at), e.at)
            for n, e in enumerate(events)
        ]
        names = ("row", "part", "key", "number", "value", "t", "at")
        types = (pa.int64(), pa.int64(), pa.string(), pa.int64(), pa.float64(), pa.int64(), pa.timestamp("us", "UTC"))
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        table = pa.table(
            {name: pa.array(column, kind) for name, column, kind in zip(names, columns, types, strict=True)}
        )
        self._given = table
        parts = [[e.at for n, e in enumerate(events) if partition_of(case, n, e) == p] for p in range(case.partitions)]
        last = [max(one, default=None) for one in parts]
        self.minimum = None if any(one is None for one in last) else microseconds(min(last))  # type: ignore[type-var]

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        """Over `given` and `judged`: the input, with the watermark of each event's own partition before it."""
        self._db.register("given", self._given)
        judged = (
            "select *, max(t) over (partition by part order by row rows between unbounded preceding and 1 preceding) as mark "
            "from given"
        )
        return self._db.execute(f"with judged as ({judged}) {sql}").fetchall()

    def _windows(self) -> str:
        """SQL: each event with its windows: ws, we."""
        window, lateness = self.case.window, self.case.lateness * SECOND
        if isinstance(window, Fixed | Sliding):
            size, slide = window.length, window.step
            return (
                f"select *, k * {slide} as ws, k * {slide} + {size} as we from (select *, unnest(generate_series("
                f"floor((t - {size}) / {slide})::bigint + 1, floor(t / {slide})::bigint)) as k from judged) "
                f"where mark is null or k * {slide} + {size} + {lateness} > mark"
            )
        if isinstance(window, Session):
            gap = window.length
            return (
                f"select *, min(t) over w as ws, max(t) over w + {gap} as we from (select *, sum(begins) over (partition by "
                f"key order by t, row) as session from (select *, case when t - max(t) over (partition by key order by t, "
                f"row rows between unbounded preceding and 1 preceding) <= {gap} then 0 else 1 end as begins from judged "
                f"where mark is null or t + {gap} + {lateness} > mark)) window w as (partition by key, session)"
            )
        assert isinstance(window, FixedCount | SlidingCount)
        size, slide = window.length, window.step
        return (
            f"select *, k as ws, k as we from (select *, unnest(generate_series(greatest(0, floor((n - {size}) / {slide})"
            f"::bigint + 1), floor(n / {slide})::bigint)) as k from (select *, row_number() over (partition by key order "
            f"by row) - 1 as n from judged))"
        )

    def results(self, names: Sequence[str]) -> list[tuple[Any, ...]]:
        """(key, window start, window end, aggregates) of all windows that have closed."""
        window, lateness = self.case.window, self.case.lateness * SECOND
        chosen = ", ".join(SQL[name] for name in names)
        if window.by_count:
            closed = f"count(*) = {window.length}"  # type: ignore[attr-defined]
        elif self.minimum is None and not self.case.fused:
            closed = "false"
        else:
            mine = "(select max(t) from given where part = any_value(p.part))" if self.case.fused else self.minimum
            wait = window.length + lateness if isinstance(window, Session) else 0
            closed = f"any_value(we) + {wait} <= {mine}"
        return self._query(
            f"select key, ws, we, {chosen} from ({self._windows()}) p group by key, ws, we having {closed}"
        )

    def open_windows(self, names: Sequence[str]) -> list[tuple[Any, ...]]:
        """As `results`, of all windows."""
        chosen = ", ".join(SQL[name] for name in names)
        return self._query(f"select key, ws, we, {chosen} from ({self._windows()}) group by key, ws, we")

    def running(self, names: Sequence[str]) -> list[tuple[Any, ...]]:
        """(number of the event, key, window start, aggregates so far) of each event and window; not for sessions."""
        chosen = ", ".join(f"{_over(SQL[name])}" for name in names)
        return self._query(
            f"select number, key, ws, {chosen} from ({self._windows()}) window w as (partition by key, ws, we order by "
            "row rows between unbounded preceding and current row)"
        )

    def late(self) -> list[tuple[int, float]]:
        """(number of the event, seconds behind its last chance) of all late events."""
        window, lateness = self.case.window, self.case.lateness * SECOND
        if window.by_count:
            return []
        if isinstance(window, Session):
            chance = f"t + {window.length + lateness}"
        else:
            step, size = window.step, window.length  # type: ignore[attr-defined]
            chance = f"floor(t / {step})::bigint * {step} + {size + lateness}"
        return self._query(f"select number, (mark - ({chance})) / 1e6 from judged where {chance} <= mark")


def _over(sql: str) -> str:
    """An aggregate over the window w; a cast comes behind."""
    function, _, kind = sql.partition("::")
    return f"({function} over w)::{kind}" if kind else f"{function} over w"
