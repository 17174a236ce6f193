"""A table operator names watermarks for what it emits: `emit_batch(batch, rows=..., watermarks=...)`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamwork import CallableSink, Event, Job, ListSource, NoState, TableOperator
from streamwork.components import TimerClock
from streamwork.components.schema import arrow_schema
from streamwork.components.table_operator import NEVER
from streamwork.components.times import microseconds
from streamwork.errors import StreamworkError
from streamwork.testing import run

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000


class Timed(Event):
    at: datetime
    gives: int | None  # seconds


class Judged(Event):
    gives: int | None
    watermark: int | None  # seconds


def marks_of(batch: pa.RecordBatch) -> Any:
    given = [NEVER if one is None else microseconds(START) + one * SECOND for one in batch["gives"].to_pylist()]
    return np.array(given, np.int64)


class Giving(TableOperator[Timed, NoState, Timed]):
    def apply_rows(self, rows: Any, state: Any, tables: Any, collector: Any) -> None:
        count = rows.batch.num_rows
        collector.emit_batch(rows.batch, rows=np.arange(count), watermarks=marks_of(rows.batch))


class Unnamed(Giving):
    def apply_rows(self, rows: Any, state: Any, tables: Any, collector: Any) -> None:
        collector.emit_batch(rows.batch, watermarks=marks_of(rows.batch))


class TooFew(Giving):
    def apply_rows(self, rows: Any, state: Any, tables: Any, collector: Any) -> None:
        count = rows.batch.num_rows
        collector.emit_batch(rows.batch, rows=np.arange(count), watermarks=marks_of(rows.batch)[1:])


class Rowless(TableOperator[Timed, NoState, Timed]):
    """Its events come from no row."""

    def apply_rows(self, rows: Any, state: Any, tables: Any, collector: Any) -> None:
        collector.emit_batch(rows.batch)


class Later(TableOperator[Timed, NoState, Timed]):
    """Emits when event time advances: due 10 s before, with a watermark 20 s before that time, and one 5 s before it."""

    clocks = frozenset((TimerClock.EVENT,))

    def apply_rows(self, rows: Any, state: Any, tables: Any, collector: Any) -> None: ...

    def on_time(self, clock: Any, time: int, state: Any, tables: Any, collector: Any) -> None:
        events = pa.RecordBatch.from_pylist([{"at": START, "gives": -by} for by in (20, 5)], arrow_schema(Timed))
        due = np.full(2, time - 10 * SECOND)
        collector.emit_batch(events, times=due, watermarks=np.array([time - 20 * SECOND, time - 5 * SECOND]))


class Seeing(TableOperator[Timed, NoState, Judged]):
    judges_lateness = True

    def apply_rows(self, rows: Any, state: Any, tables: Any, collector: Any) -> None:
        seen = [None if at == NEVER else round((at - microseconds(START)) / SECOND) for at in rows.watermarks.tolist()]
        found = [{"gives": row["gives"], "watermark": at} for row, at in zip(rows.batch.to_pylist(), seen, strict=True)]
        count = rows.batch.num_rows
        collector.emit_batch(pa.RecordBatch.from_pylist(found, arrow_schema(Judged)), rows=np.arange(count))


def judged(*operators: TableOperator[Any, Any, Any], events: list[tuple[int, int | None]]) -> list[tuple[Any, Any]]:
    """(what was given, the watermark that is judged by) of each event that arrives behind these operators."""
    job = Job("given", checkpoint_every=0)
    stream: Any = job.source(ListSource([], Timed), id="in", time="at")
    for place, operator in enumerate(operators):
        stream = stream.apply(operator, id=f"n{place}")
    stream.apply(Seeing(), id="seeing").sink(CallableSink(print), id="out")
    given = [Timed(START + timedelta(seconds=at), gives) for at, gives in events]
    return [(row.gives, row.watermark) for row in run(job, {"in": given}, epoch_events=1).outputs["out"]]


def test_the_later_watermark_counts() -> None:
    events = [(100, None), (101, 90), (102, 500), (103, None), (104, 30)]
    assert judged(Giving(), events=events) == [(None, None), (90, 100), (500, 500), (None, 102), (30, 103)]


def test_an_event_that_comes_from_no_row_counts_as_come_at_the_minimum() -> None:
    """Else the watermark of a kept row alone would be before windows that have closed since."""
    job = Job("given", checkpoint_every=0)
    stream = job.source(ListSource([], Timed), id="in", time="at")
    both = stream.union(stream.apply(Rowless(), id="rowless")).apply(Giving(), id="giving")
    both.apply(Seeing(), id="seeing").sink(CallableSink(print), id="out")
    given = [Timed(START + timedelta(seconds=at), gives) for at, gives in [(130, 7), (110, 50), (120, 500)]]
    found = [(row.gives, row.watermark) for row in run(job, {"in": given}, epoch_events=1).outputs["out"]]
    assert found == [(7, 7), (7, 7), (50, 130), (50, 130), (500, 500), (500, 500)]


def test_what_is_due_at_a_time_has_no_earlier_watermark() -> None:
    assert judged(Later(), events=[(100, None)]) == [(-20, 90), (-5, 95)]


@pytest.mark.parametrize(
    ("operator", "reason"), [(Unnamed(), "beside rows="), (TooFew(), "one whole number per emitted row")]
)
def test_what_names_nothing_is_refused(operator: Any, reason: str) -> None:
    with pytest.raises(StreamworkError, match=reason):
        judged(operator, events=[(100, 1)])
