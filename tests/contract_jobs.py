"""Jobs of the contract suite: one for each part of the component model. Importable by Spark's workers."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamwork import Event, KeyedOperator, Operator, Record, StatefulOperator, StatefulSource


class Reading(Event):
    sensor: str
    value: int
    at: datetime


class Alert(Event):
    sensor: str
    value: int


class Average(Event):
    sensor: str
    average: float


class Quiet(Event):
    sensor: str
    readings: int


class Running(Record):
    count: int = 0
    total: int = 0


class Counted(Event):
    number: int
    sensor: str


class Numbering(StatefulOperator[Reading, Running, Counted]):
    """Numbers the events that its instance sees; raises on a negative value, after it has changed itself."""

    def setup_instance(self, instance: int, state: Running | None) -> None:
        self.first = state is None
        self.state = Running() if state is None else state

    def apply(self, event: Reading, collector: Any) -> None:
        self.state.count += 1
        collector.emit(Counted(self.state.count, event.sensor))
        if event.value < 0:
            raise ValueError("below zero")

    def get_state(self) -> Running:
        return self.state


class Splitting(Operator[Reading, Reading]):
    """Hot readings go to a channel of their own."""

    channels = {"hot": Alert}

    def apply(self, event: Reading, collector: Any) -> None:
        if event.value > 90:
            collector.emit(Alert(event.sensor, event.value), "hot")
        else:
            collector.emit(event)


class Averaging(KeyedOperator[Reading, Running, Average]):
    """The running average of each sensor; raises on a negative value, after it has changed its record and emitted."""

    def apply(self, event: Reading, state: Running, collector: Any) -> None:
        state.count += 1
        state.total += event.value
        collector.emit(Average(event.sensor, state.total / state.count))
        if event.value < 0:
            raise ValueError("below zero")


class Silence(KeyedOperator[Reading, Running, Quiet]):
    """Tells when a sensor has been silent for ten seconds of event time, and forgets it."""

    def apply(self, event: Reading, state: Running, collector: Any) -> None:
        state.count += 1
        state.total = max(state.total, int(event.at.timestamp()))
        collector.set_timer(event.at + timedelta(seconds=10))

    def on_timer(self, key: str, at: datetime, state: Running, collector: Any) -> None:
        if int(at.timestamp()) >= state.total + 10:
            collector.emit(Quiet(key, state.count))
            collector.clear_state()


class Waking(KeyedOperator[Reading, Running, Quiet]):
    """Asks to be woken as soon as processing time goes on."""

    def apply(self, event: Reading, state: Running, collector: Any) -> None:
        state.count += 1
        collector.set_timer(event.at, clock="processing")

    def on_timer(self, key: str, at: datetime, state: Running, collector: Any) -> None:
        collector.emit(Quiet(key, state.count))


class Forgetting(KeyedOperator[Reading, Running, Quiet]):
    """Counts; a value of 0 ends the count of its sensor."""

    def apply(self, event: Reading, state: Running, collector: Any) -> None:
        state.count += 1
        collector.emit(Quiet(event.sensor, state.count))
        if event.value == 0:
            collector.clear_state()


class Columns(Operator[Reading, Alert]):
    """Whole columns at a time."""

    def apply_batch(self, batch: pa.RecordBatch, collector: Any) -> None:
        hot = batch.filter(pc.greater(batch.column("value"), 50)).select(["sensor", "value"])
        collector.emit(hot)


def is_even(reading: Reading) -> bool:
    return reading.value % 2 == 0


def to_alert(reading: Reading) -> Alert:
    return Alert(reading.sensor, reading.value)


def twice(reading: Reading) -> list[Reading]:
    return [reading, reading]


def summing(reading: Reading, state: Running) -> Alert | None:
    state.total += reading.value
    return Alert(reading.sensor, state.total) if reading.value else None


class Place(Record):
    at: int = 0


class Counter(StatefulSource[Counted, Place]):
    """Gives the numbers up to a limit, some at a time."""

    replayable = True
    bounded = True
    max_events = 4

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def setup_instance(self, instance: int, state: Place | None) -> None:
        self.instance = instance
        self.place = Place() if state is None else state

    def get_events(self, collector: Any) -> None:
        for _ in range(3):
            if self.place.at < self.limit:
                self.place.at += 1
                collector.emit(Counted(self.place.at, f"i{self.instance}"))

    def get_state(self) -> Place:
        return self.place


class Closing(Operator[Reading, Reading]):
    """Leaves a file for each instance that was set up, and another when it is closed."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def setup_instance(self, instance: int) -> None:
        self.name = f"{os.getpid()}-{instance}-{id(self)}"
        (Path(self.folder) / f"{self.name}.opened").touch()

    def apply(self, event: Reading, collector: Any) -> None:
        collector.emit(event)

    def close(self) -> None:
        (Path(self.folder) / f"{self.name}.closed").touch()


class Seeking(StatefulSource[Counted, Place]):
    """Looks at one number at a time, up to a limit, and gives every tenth. It advances more often than it gives something."""

    replayable = True
    bounded = True

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def setup_instance(self, instance: int, state: Place | None) -> None:
        self.place = Place() if state is None else state

    def get_events(self, collector: Any) -> None:
        if self.place.at < self.limit:
            self.place.at += 1
            if self.place.at % 10 == 0:
                collector.emit(Counted(self.place.at, "s"))

    def get_state(self) -> Place:
        return self.place


class Endless(StatefulSource[Counted, Place]):
    """Always has something."""

    replayable = True

    def setup_instance(self, instance: int, state: Place | None) -> None:
        self.place = Place() if state is None else state

    def get_events(self, collector: Any) -> None:
        self.place.at += 1
        collector.emit(Counted(self.place.at, "e"))

    def get_state(self) -> Place:
        return self.place


class Stamped(Event):
    sensor: str
    value: int
    now: datetime
    watermark: datetime | None


class Stamping(Operator[Reading, Stamped]):
    """Says what time it is."""

    def apply(self, event: Reading, collector: Any) -> None:
        collector.emit(Stamped(event.sensor, event.value, collector.now, collector.watermark))


class Stamps(Record):
    last: datetime = datetime(1970, 1, 1, tzinfo=UTC)


class Stringing(KeyedOperator[Reading, Stamps, Stamped]):
    """Says what time it is, and in the place of the watermark what time it was at the last event of the key."""

    def apply(self, event: Reading, state: Stamps, collector: Any) -> None:
        collector.emit(Stamped(event.sensor, event.value, collector.now, state.last))
        state.last = collector.now


class StringingMarks(KeyedOperator[Reading, Stamps, Stamped]):
    """As `Stringing`, of watermarks."""

    def apply(self, event: Reading, state: Stamps, collector: Any) -> None:
        mark = collector.watermark or Stamps().last
        collector.emit(Stamped(event.sensor, event.value, mark, state.last))
        state.last = mark


class Watching(KeyedOperator[Reading, Stamps, Stamped]):
    def apply(self, event: Reading, state: Stamps, collector: Any) -> None:
        collector.emit(Stamped(event.sensor, event.value, collector.now, collector.watermark))


def _watermark(collector: Any) -> datetime | None:
    found: datetime | None = collector.watermark
    return found


class Hiding(Operator[Reading, Stamped]):
    """Reads the watermark where its methods do not show it."""

    def apply(self, event: Reading, collector: Any) -> None:
        collector.emit(Stamped(event.sensor, event.value, collector.now, _watermark(collector)))


class Declaring(Hiding):
    reads_watermark = True
