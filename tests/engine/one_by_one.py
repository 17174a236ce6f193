"""The oracle of batches: a chain through which each event passes alone, depth first, with timers fired behind each.

And random jobs for it: branches that part and meet, children, filters, timers of all kinds, columns, watermarks that are read.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork import Event, Job, KeyedOperator, ListSource, Operator, Record, SqliteSink, StatefulOperator, Stream
from streamwork.components import TimerClock
from streamwork.components.collector import MAIN
from streamwork.components.times import from_microseconds, microseconds
from streamwork.engine.chain import Chain
from streamwork.engine.routes import To
from streamwork.engine.steps.batch_steps import BatchStep
from streamwork.engine.steps.keyed_steps import KeyedStep
from streamwork.engine.steps.table_step import TableStep
from streamwork.engine.times import RowTimes
from streamwork.engine.wave import Leaving
from streamwork.flow.batch import Batch
from streamwork.flow.channel import Advances, Data
from streamwork.flow.lineage import NEVER, Lineage
from streamwork.flow.times import times_of
from streamwork.job import Input

START = datetime(2026, 1, 1, tzinfo=UTC)
NONE = SqliteSink("never-opened.db", "t")


class OneByOne(Chain):
    """Feeds single events, depth first: what one emits reaches everything behind before the next one enters."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        mine = {node.id for node in self.nodes}
        self._behind: dict[Input, list[To]] = {}
        for name, step in self._steps.items():
            tables = self.graph.tables_of(step.node)
            for port in step.node.ports:
                for one in port.inputs:
                    if one.node in mine and port.name not in tables:
                        self._behind.setdefault(one, []).append(To(name, port.name))
            if isinstance(step, BatchStep):
                step.rows, step.orders_rows = 1, False
        outside = [node for node in self.graph.nodes if node.id not in mine]
        self._out = {one for node in outside for one in node.inputs if one.node in mine}

    def _begin(self, behind: str, batch: Batch, time: str | None, name: str) -> None:
        for one in singles(batch):
            before = self.progress.of(name)
            kept = one.lineage or Lineage()
            marks = np.array([NEVER if before is None else before])
            self._emit(behind, {MAIN: Batch(one.given, Lineage(kept.roots, kept.origins, marks))})
            if time is not None:
                self._rise(name, int(times_of(one.given, time)[0]))

    def _receive(self, channel: str, data: Data) -> None:
        for part in data.parts:
            for one in singles(part.batch):
                self._feed(To(part.to, part.port), one)
        for time in data.advances.times.tolist():
            self._rise(channel, time)

    def tick(self, now: datetime) -> None:
        self.now = now
        self._fire(TimerClock.PROCESSING, now)

    def drain(self) -> None:
        for name, step in self._steps.items():
            self._emit(name, step.drain())

    def _rise(self, name: str, time: int) -> None:
        before = self.progress.of(name)
        if before is not None and time <= before:
            return
        if (minima := self.progress.advance(name, np.array([time]))) is not None:
            now = from_microseconds(int(minima[0]))
            self._fire(TimerClock.EVENT, now)
            if self._out:
                self.outbox.append(now)

    def _fire(self, clock: TimerClock, now: datetime) -> None:
        at = microseconds(now)
        for name, step in self._steps.items():
            if isinstance(step, TableStep) and step.follows(clock):
                advances = Advances(np.zeros(1, np.int64), np.array([at]))
                self._emit(name, step.pass_wave([], advances, clock, self.progress.minimum))
            elif isinstance(step, KeyedStep) and step.node.follows_time:
                if isinstance(step.times, RowTimes):
                    step.times.at = self.progress.minimum
                self._emit(name, step.fired_at(step.fire(clock, now), 0, at if clock is TimerClock.EVENT else None))

    def _feed(self, to: To, batch: Batch) -> None:
        step = self._steps[to.step]
        if isinstance(step, TableStep):
            self._emit(to.step, step.pass_wave([(to.port, batch)], watermark=self.progress.minimum))
            return
        if isinstance(step.times, RowTimes):
            step.times.at = self.progress.minimum
        if isinstance(step, KeyedStep):
            step.touched_at = ()  # the next advance is not known
        self._emit(to.step, step.process(batch))

    def _emit(self, by: str, outputs: Any) -> None:
        for channel in (MAIN, *self.graph[by].channels):
            if (batch := outputs.get(channel)) is None or not len(batch):
                continue
            batch = batch.at(None)
            if Input(by, channel) in self._out:
                self.outbox.append(Leaving([(Input(by, channel), batch)]))
            for to in self._behind.get(Input(by, channel), ()):
                self._feed(to, batch)


def singles(batch: Batch) -> Iterable[Batch]:
    return (batch[place : place + 1] for place in range(len(batch)))


# ---- random jobs --------------------------------------------------------------------------------------------------


class Item(Event):
    key: str
    number: int
    at: datetime
    trace: str = ""


class Count(Record):
    count: int = 0


def marked(item: Item, mark: str) -> Item:
    return Item(item.key, item.number, item.at, item.trace + mark)


class Marking(Operator[Item, Item]):
    def __init__(self, mark: str) -> None:
        self.mark = mark

    def apply(self, event: Item, collector: Any) -> None:
        collector.emit(marked(event, self.mark))


class Children(Marking):
    """None to three children."""

    def apply(self, event: Item, collector: Any) -> None:
        for child in range((event.number + len(event.trace)) % 4):
            collector.emit(marked(event, f"{self.mark}{child}"))


class Parting(Marking):
    """Some events on another channel, some on both."""

    channels = {"side": Item}

    def apply(self, event: Item, collector: Any) -> None:
        if event.number % 3:
            collector.emit(marked(event, self.mark), "side")
        if event.number % 2:
            collector.emit(marked(event, self.mark + "m"))


class Numbering(StatefulOperator[Item, Count, Item]):
    """Numbers the events of its instance: it shows their order."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def setup_instance(self, instance: Any, state: Count | None) -> None:
        self.state = state or Count()

    def get_state(self) -> Count:
        return self.state

    def apply(self, event: Item, collector: Any) -> None:
        self.state.count += 1
        collector.emit(marked(event, f"{self.mark}#{self.state.count}"))


class Timing(KeyedOperator[Item, Count, Item]):
    """Sets timers near, far, in the past, and from timers; forgets keys now and then."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def apply(self, event: Item, state: Count, collector: Any) -> None:
        state.count += 1
        kind = (event.number + len(event.trace)) % 6
        if kind < 4:
            collector.set_timer(event.at + timedelta(seconds=(0, 1, 5, -3)[kind]))
        elif kind == 5:
            collector.clear_state()
        elif state.count % 2:
            collector.delete_timer(event.at + timedelta(seconds=5))
            collector.delete_timer(event.at + timedelta(seconds=1))
            collector.set_timer(event.at + timedelta(seconds=1))
        collector.emit(marked(event, f"{self.mark}{state.count}"))

    def on_timer(self, key: str, at: datetime, state: Count, collector: Any) -> None:
        state.count += 10
        if state.count % 3 == 0:
            collector.set_timer(at + timedelta(seconds=2))
        if state.count % 7 == 0:
            collector.set_timer(at - timedelta(seconds=9))
        collector.emit(Item(key, state.count, at, f"{self.mark}!"))


class Reading(Marking):
    """Notes the watermark."""

    def apply(self, event: Item, collector: Any) -> None:
        found = collector.watermark
        second = "-" if found is None else int((found - START).total_seconds())
        collector.emit(marked(event, f"{self.mark}@{second}"))


class TimingByWatermark(Timing):
    def on_timer(self, key: str, at: datetime, state: Count, collector: Any) -> None:
        collector.emit(Item(key, int((collector.watermark - START).total_seconds()), at, f"{self.mark}!"))


class Doubling(Operator[Item, Item]):
    """On columns: each row twice."""

    def apply_batch(self, batch: pa.RecordBatch, collector: Any) -> None:
        collector.emit_batch(batch.take(pa.array(np.repeat(np.arange(batch.num_rows), 2))))


def is_kept(item: Item) -> bool:
    return item.number % 5 != 1


SHAPES = (
    "mark",
    "filter",
    "children",
    "part",
    "number",
    "time",
    "time",
    "read",
    "time-read",
    "double",
    "union",
    "union",
)


def random_job(seed: int, parallelism: int = 1, shapes: tuple[str, ...] = SHAPES) -> Job:
    """With `parallelism`, the last operator has timers and so many instances behind an exchange."""
    rng = random.Random(seed)
    job = Job("random", checkpoint_every=0)
    streams: list[Stream[Any]] = [job.source(ListSource([], Item), id="in", time="at", parallelism=1)]
    last = rng.randint(3, 8)
    for place in range(last + 1):
        stream, name, mark = rng.choice(streams[-3:]), f"n{place}", chr(97 + place)
        shape = rng.choice(shapes)
        if shape == "union":
            stream = stream.union(rng.choice(streams))
            shape = rng.choice(shapes[:7])
        wide = parallelism if place == last else None
        if parallelism > 1 and place == last:
            shape = rng.choice(["time", "time-read"])
        if shape == "filter":
            made = stream.filter(is_kept, id=name)
        elif shape == "children":
            made = stream.apply(Children(mark), id=name)
        elif shape == "part":
            made = stream.apply(Parting(mark), id=name)
            streams.append(made.channel("side"))
        elif shape == "number":
            made = stream.apply(Numbering(mark), id=name)
        elif shape == "time":
            ttl = rng.choice([None, None, "3s", "20s"])
            made = stream.apply(Timing(mark), key="key", id=name, parallelism=wide, ttl=ttl)
        elif shape == "time-read":
            made = stream.apply(TimingByWatermark(mark), key="key", id=name, parallelism=wide)
        elif shape == "read":
            made = stream.apply(Reading(mark), id=name)
        elif shape == "double":
            made = stream.apply(Doubling(), id=name)
        else:
            made = stream.apply(Marking(mark), id=name)
        streams.append(made)
    for place, stream in enumerate(streams[-3:]):
        stream.sink(NONE, id=f"end{place}")
    if parallelism == 1:
        streams[-1].union(rng.choice(streams)).sink(NONE, id="whole")
    return job


def random_items(seed: int, count: int) -> list[Item]:
    """Out of order, with equal times and jumps."""
    rng, second, items = random.Random(seed), 0, []
    for number in range(count):
        second += rng.choice([0, 0, 1, 1, 2, 8])
        at = START + timedelta(seconds=max(0, second - rng.choice([0, 0, 0, 1, 4])))
        items.append(Item(rng.choice("abc"), number, at))
    return items
