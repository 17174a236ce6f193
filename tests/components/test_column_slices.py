"""A source of one's own may give Arrow batches instead of lists of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamwork import Event, Job, KeyedCollector, KeyedOperator, OffsetSource, Record, Slice, SqliteSink, field
from streamwork.errors import StreamworkError
from streamwork.testing import run

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Reading(Event):
    sensor: str
    value: int
    at: datetime


class Sum(Record):
    total: int = 0


class Running(KeyedOperator[Reading, Sum, Reading]):
    def apply(self, event: Reading, state: Sum, collector: KeyedCollector) -> None:
        state.total += event.value
        collector.emit(Reading(event.sensor, state.total, event.at))


class Rows(OffsetSource[Reading]):
    """The rows of a batch, in pieces: as columns or as events."""

    event = Reading
    bounded = True

    def __init__(self, batch: pa.RecordBatch, piece: int, columns: bool, max_events: int = 1_000) -> None:
        self.batch, self.piece, self.columns, self.max_events = batch, piece, columns, max_events

    def partitions(self) -> list[str]:
        return ["0"]

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        return {partition: min(start + limit, self.batch.num_rows) for partition, start in starts.items()}

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        for at in range(start, end, self.piece):
            part = self.batch.slice(at, min(self.piece, end - at))
            yield Slice(part if self.columns else [Reading(**row) for row in part.to_pylist()], at)


def readings(values: list[tuple[str, int]]) -> pa.RecordBatch:
    sensors, numbers = ([one[n] for one in values] for n in (0, 1))
    times = pa.array([AT] * len(values), pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays(
        [pa.array(sensors, pa.string()), pa.array(numbers, pa.int64()), times], names=["sensor", "value", "at"]
    )


def outputs(batch: pa.RecordBatch, piece: int, columns: bool, max_events: int) -> list[Any]:
    job = Job("columns")
    source = job.source(Rows(batch, piece, columns, max_events), id="rows")
    kept = source.where(field("value") > 0)
    kept.apply(Running(), key="sensor", id="sums").sink(SqliteSink("o.db", "o"), id="out")
    return run(job).outputs["out"]


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5)), min_size=1, max_size=40),
    st.integers(1, 9),
    st.integers(1, 20),
)
def test_columns_are_the_events_that_they_hold(values: list[tuple[str, int]], piece: int, max_events: int) -> None:
    batch = readings(values)
    assert outputs(batch, piece, True, max_events) == outputs(batch, piece, False, max_events)


TIMES = pa.array([AT], pa.timestamp("us", "UTC"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sensor": ["a"], "at": TIMES}, "'value' are missing or too many"),
        ({"sensor": ["a"], "value": [1], "at": TIMES, "more": [1]}, "'more' are missing or too many"),
        ({"sensor": ["a"], "value": [1.5], "at": TIMES}, "'value' is double, not int64"),
        ({"sensor": ["a"], "value": pa.array([None], pa.int64()), "at": TIMES}, "'value' has nulls"),
    ],
    ids=["missing", "too many", "wrong type", "null"],
)
def test_columns_that_are_no_events_are_refused(columns: dict[str, Any], message: str) -> None:
    batch = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(StreamworkError, match=message) as caught:
        outputs(batch, 1, True, 1)
    assert caught.value.code == "SW-TYPE-EVENT"
    assert "rows" in str(caught.value)
