"""Table operators for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.one_by_one import Item
from streamwork import NoState, Record, Rows, StateTable, TableCollector, TableOperator
from streamwork.components import TimerClock


def marked(batch: pa.RecordBatch, mark: str) -> pa.RecordBatch:
    trace = pc.binary_join_element_wise(batch["trace"], mark, "")
    return batch.set_column(batch.schema.get_field_index("trace"), batch.schema.field("trace"), trace)


class Passing(TableOperator[Item, NoState, Item]):
    """Each row twice, named; odd rows on a channel as well. Keeps nothing."""

    channels = {"odd": Item}

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def apply_rows(self, rows: Rows, state: Any, tables: Mapping[str, Any], collector: TableCollector) -> None:
        assert state is None
        twice = np.repeat(np.arange(rows.batch.num_rows), 2)
        collector.emit_batch(marked(rows.batch.take(pa.array(twice)), self.mark), rows=twice)
        odd = np.flatnonzero(rows.batch["number"].to_numpy() % 2 == 1)
        collector.emit_batch(marked(rows.batch.take(pa.array(odd)), self.mark + "o"), "odd", rows=odd)


class Lateness(TableOperator[Item, NoState, Item]):
    """Rows that are behind the watermark of their partition are marked."""

    judges_lateness = True

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def apply_rows(self, rows: Rows, state: Any, tables: Mapping[str, Any], collector: TableCollector) -> None:
        times = rows.batch["at"].cast(pa.int64()).to_numpy()
        late = times < rows.watermarks
        trace = [
            f"{trace}{self.mark}{'L' if is_late else ''}"
            for trace, is_late in zip(rows.batch["trace"].to_pylist(), late, strict=True)
        ]
        batch = rows.batch.set_column(
            rows.batch.schema.get_field_index("trace"), rows.batch.schema.field("trace"), pa.array(trace)
        )
        collector.emit_batch(batch, rows=np.arange(batch.num_rows))


class Due(Record):
    due: int = 0
    number: int = 0


class Place(Record):
    place: int = 0


class Waiting(TableOperator[Item, Due, Item]):
    """Keeps each row until event time is beyond it by some seconds, then emits it."""

    sub_key = Place
    clocks = frozenset({TimerClock.EVENT})

    def __init__(self, mark: str, seconds: int = 2) -> None:
        self.mark, self.seconds = mark, seconds

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        batch = rows.batch
        keys = pa.record_batch({"key": batch["key"], "place": batch["number"]})
        places = state.place(keys)
        state.put("due", places, batch["at"].cast(pa.int64()).to_numpy() + self.seconds * 1_000_000)
        state.put("number", places, batch["number"].to_numpy())

    def on_time(
        self,
        clock: TimerClock,
        time: int,
        state: StateTable,
        tables: Mapping[str, StateTable],
        collector: TableCollector,
    ) -> None:
        assert clock is TimerClock.EVENT
        places = state.due("due", time)
        times = state.numbers("due", places)
        count = len(places)
        collector.emit_batch(
            pa.record_batch(
                {
                    "key": state.keys(places)["key"],
                    "number": state.values("number", places),
                    "at": pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
                    "trace": pa.array([f"{self.mark}!"] * count, pa.string()),
                }
            ),
            times=times,
        )
        state.forget(places)
