"""Slices are joined at the inlet of a chain of operators on columns: nothing is lost, offsets and counts stay right."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamwork import Event, EventLog, Fixed, Job, LogSource, count, field
from streamwork.bench.epochs import KeepingSink
from streamwork.components import Slice, batches
from streamwork.components.columns import Columns
from streamwork.engine.inlet import gathered, takes_columns


class Reading(Event):
    at: datetime
    sensor: str


class PerSensor(Event):
    sensor: str
    readings: int


START = datetime(2026, 1, 1, tzinfo=UTC)


def piece(first: int, rows: int, offsets: list[int] | None = None) -> Slice:
    given = pa.record_batch(
        {
            "at": pa.array([START + timedelta(seconds=first + row) for row in range(rows)], pa.timestamp("us", "UTC")),
            "sensor": [f"s{first + row}" for row in range(rows)],
        }
    )
    columns = Columns.of(Reading, given)
    assert isinstance(columns, Columns)
    return Slice(columns, first if offsets is None else offsets)


def names(slices: list[Slice]) -> list[list[str]]:
    return [[event.sensor for event in one.events] for one in slices]


def test_events_and_offsets_stay_in_order() -> None:
    given = [piece(0, 3), piece(3, 2), piece(5, 2, [7, 9]), piece(10, 4), piece(14, 1)]
    found = list(gathered(iter(given), 6))
    assert [len(one.given) for one in found] == [7, 5]
    assert list(chain(*names(found))) == list(chain(*names(given)))
    assert np.concatenate([one.offsets for one in found]).tolist() == [0, 1, 2, 3, 4, 7, 9, 10, 11, 12, 13, 14]


def test_lists_are_passed_on_in_their_place() -> None:
    events = [Reading(START, "a"), Reading(START, "b")]
    found = list(gathered(iter([piece(0, 2), piece(2, 2), Slice(events, 4), piece(6, 1)]), 100))
    assert names(found) == [["s0", "s1", "s2", "s3"], ["a", "b"], ["s6"]]


def test_counts_are_added() -> None:
    one, other = piece(0, 2), piece(2, 1)
    one.dropped, other.dropped = 1, 2
    one.letters, other.letters = [("bad", "why")], [("worse", "why")]
    one.left_out, other.left_out = {"where": 3}, {"where": 4}
    (found,) = gathered(iter([one, other]))
    assert found.dropped == 3 and found.left_out == {"where": 7} and found.letters == [("bad", "why"), ("worse", "why")]
    assert found.came == one.came + other.came
    other.left_out = {}
    assert len(list(gathered(iter([one, other])))) == 2, "events that continue behind different filters stay apart"


def test_a_batch_beyond_the_limit_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [piece(0, 5), piece(5, 5)]
    monkeypatch.setattr(batches, "MOST_BYTES", 100)
    assert names(list(gathered(iter(given)))) == names(given)


def test_only_operators_on_columns_get_large_slices(tmp_path: Path) -> None:
    EventLog.create(tmp_path / "log", Reading, key="sensor", partitions=1).close()
    job = Job("readings")
    readings = job.source(LogSource(tmp_path / "log", Reading), id="readings", time="at")
    kept = readings.where(field("sensor") != "s0", id="kept")
    windows = kept.window(Fixed("10s"), key="sensor", id="windows").aggregate(PerSensor, readings=count())
    windows.sink(KeepingSink(tmp_path / "ledger"), id="out")
    graph = job.graph()
    assert takes_columns(graph, "readings") and takes_columns(graph, "kept")
    assert not takes_columns(graph, "windows"), "its sink stages what comes"
    kept.map(lambda reading: reading, to=Reading).sink(KeepingSink(tmp_path / "other"), id="copies")
    assert not takes_columns(job.graph(), "readings"), "one that takes events gets them as they come"
