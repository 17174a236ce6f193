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
from streamwork.components.times import microseconds


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


class Kept(Record):
    number: int = 0


class Place(Record):
    """What distinguishes rows: results must not depend on which of two comes first."""

    place: int = 0
    due: int = 0


class Waiting(TableOperator[Item, Kept, Item]):
    """Keeps each row until event time is beyond it by some seconds, then emits it. A row that comes later leaves at once."""

    sub_key = Place
    clocks = frozenset({TimerClock.EVENT})
    judges_lateness = True
    keeps_key = True

    def __init__(self, mark: str, seconds: int = 2) -> None:
        self.mark, self.seconds = mark, seconds

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        due = rows.batch["at"].cast(pa.int64()).to_numpy() + self.seconds * 1_000_000
        late = np.flatnonzero(due <= rows.watermarks)
        collector.emit_batch(marked(rows.batch.take(pa.array(late)), f"{self.mark}L"), rows=late)
        kept = np.flatnonzero(due > rows.watermarks)
        batch = rows.batch.take(pa.array(kept))
        places = state.place(
            pa.record_batch({"key": batch["key"], "place": batch["number"], "due": pa.array(due[kept])})
        )
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
        times = state.values("due", places).to_numpy()
        collector.emit_batch(
            items(state.keys(places)["key"], state.values("number", places), times, f"{self.mark}!"), times=times
        )
        state.forget(places)


class Version(Record):
    number: int = 0


class Since(Record):
    since: int = 0


class Newest(TableOperator[Item, Version, Item]):
    """A table: all versions of each key."""

    shares_state = True
    sub_key = Since

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        at = rows.batch["at"].cast(pa.int64())
        places = state.place(pa.record_batch({"key": rows.batch["key"], "since": at}))
        state.put("number", places, rows.batch["number"].to_numpy())


class AsOf(Waiting):
    """Emits each row with the number of the newest version at or before its time, when event time is beyond it."""

    ports = {"table": Item}

    def __init__(self) -> None:
        super().__init__("", seconds=0)

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        batch = rows.batch
        due = pa.array(batch["at"].cast(pa.int64()).to_numpy() + 1)
        places = state.place(pa.record_batch({"key": batch["key"], "place": batch["number"], "due": due}))
        state.put("number", places, batch["number"].to_numpy())

    def on_time(
        self,
        clock: TimerClock,
        time: int,
        state: StateTable,
        tables: Mapping[str, StateTable],
        collector: TableCollector,
    ) -> None:
        places = state.due("due", time)
        due, keys = state.values("due", places).to_numpy(), state.keys(places)
        of, versions = tables["table"].matches(keys.select(["key"]))
        since = tables["table"].values("since", versions).to_numpy()
        numbers = tables["table"].numbers("number", versions)
        trace = []
        for row, at in enumerate(due.tolist()):
            mine = (of == row) & (since < at)
            trace.append(str(numbers[mine][since[mine].argmax()]) if mine.any() else "-")
        batch = items(keys["key"], state.values("number", places), due, "")
        collector.emit_batch(
            batch.set_column(batch.schema.get_field_index("trace"), "trace", pa.array(trace, pa.string())), times=due
        )
        state.forget(places)


def items(keys: pa.Array, numbers: pa.Array, times: Any, trace: str) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": keys,
            "number": numbers,
            "at": pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            "trace": pa.array([trace] * len(numbers), pa.string()),
        }
    )


class Pulse(Waiting):
    """Keeps each row until processing time has advanced, then emits it."""

    clocks = frozenset({TimerClock.PROCESSING})

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        batch, now = rows.batch, microseconds(collector.now)
        due = pa.array([now + self.seconds * 1_000_000] * batch.num_rows, pa.int64())
        places = state.place(pa.record_batch({"key": batch["key"], "place": batch["number"], "due": due}))
        state.put("number", places, batch["number"].to_numpy())

    def on_time(
        self,
        clock: TimerClock,
        time: int,
        state: StateTable,
        tables: Mapping[str, StateTable],
        collector: TableCollector,
    ) -> None:
        assert clock is TimerClock.PROCESSING
        super().on_time(TimerClock.EVENT, time, state, tables, collector)

    def next_time(self, clock: TimerClock, state: StateTable) -> int | None:
        return state.earliest("due")
