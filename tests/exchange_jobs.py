"""Jobs with exchanges, importable by Spark's workers."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from contract_jobs import Alert, Reading, Running, Splitting, is_even
from streamwork import (
    Event,
    Job,
    KeyedOperator,
    Operator,
    Record,
    fields,
    shuffle,
    single,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
SHAPES = ["keyed", "grouped", "filter", "fork", "diamond", "channels"]


def readings(count: int, sensors: int = 5) -> list[Reading]:
    return [Reading(f"s{i * 7 % sensors}", i * 37 % 101, START + timedelta(seconds=i)) for i in range(count)]


class Same(Operator[Reading, Reading]):
    def apply(self, event: Reading, collector: Any) -> None:
        collector.emit(event)


class Count(Event):
    sensor: str
    number: int
    total: int


class Counting(KeyedOperator[Reading, Running, Count]):
    def apply(self, event: Reading, state: Running, collector: Any) -> None:
        state.count += 1
        state.total += event.value
        collector.emit(Count(event.sensor, state.count, state.total))


class Seen(Record):
    values: list[int] = []


class History(Event):
    sensor: str
    values: list[int]


class Remembering(KeyedOperator[Reading, Seen, History]):
    """Tells all values of a sensor, in the order in which they came."""

    def apply(self, event: Reading, state: Seen, collector: Any) -> None:
        state.values.append(event.value)
        collector.emit(History(event.sensor, state.values))


class Lengths(Operator[History, Alert]):
    def apply(self, event: History, collector: Any) -> None:
        collector.emit(Alert(event.sensor, len(event.values)))


class Dropping(Operator[Reading, Reading]):
    def apply(self, event: Reading, collector: Any) -> None:
        """Nothing comes out."""


def random_job(seed: int, sources: list[Any], sink: Any) -> Job:
    """A job of readings, put together at random; `sink(stream, name)` ends a branch."""
    rng = random.Random(seed)
    job = Job("random", checkpoint_every=0)
    streams = [
        job.source(source, id=f"in-{place}", parallelism=rng.randint(1, 2)) for place, source in enumerate(sources)
    ]
    stream = streams[0]
    for place, shape in enumerate(rng.sample(SHAPES, 3)):
        count = rng.randint(1, 3)
        if shape == "filter":
            stream = stream.filter(is_even, id=f"filter-{place}")
        elif shape == "fork":
            stream = stream.filter(is_even, id=f"even-{place}").union(stream.apply(Same(), id=f"same-{place}"))
        elif shape == "diamond":
            turned = stream.apply(Same(), id=f"turned-{place}", grouping=shuffle(), parallelism=count)
            stream = stream.union(turned.apply(Same(), id=f"one-{place}", grouping=single(), parallelism=2))
        elif shape == "channels":
            split = stream.apply(Splitting(), id=f"split-{place}", grouping=fields("sensor"), parallelism=count)
            sink(split.channel("hot"), f"hot-{place}")
            stream = split
        elif shape == "grouped":
            grouping = rng.choice([shuffle(), single(), fields("sensor")])
            stream = stream.apply(Same(), id=f"grouped-{place}", grouping=grouping, parallelism=count)
        else:
            counts = stream.apply(Counting(), key="sensor", id=f"counts-{place}", parallelism=count)
            sink(counts.map(number_only, to=Alert, id=f"number-{place}"), f"counts-{place}")
    for place, other in enumerate(streams[1:]):
        stream = stream.union(other.apply(Same(), id=f"joining-{place}"))
    last = stream.apply(Counting(), key="sensor", id="counts", parallelism=rng.randint(1, 3))
    sink(last.map(number_only, to=Alert, id="number"), "counts")
    return job


def number_only(count: Count) -> Alert:
    """The running total depends on the order of what comes from several instances; the number does not."""
    return Alert(count.sensor, count.number)


class Dicing(Operator[Reading, Reading]):
    """Gives other values each time it is run."""

    deterministic = False

    def apply(self, event: Reading, collector: Any) -> None:
        collector.emit(Reading(event.sensor, random.SystemRandom().randrange(2**60), event.at))


class Spoiling(KeyedOperator[Reading, Running, Reading]):
    """Passes on what it gets. The first instance that gets something removes what Spark keeps of the stage before, once: as if
    the machine that had computed it were lost when some have read its output and others have not.
    """

    def __init__(self, kept: list[str], marker: str) -> None:
        self.kept = kept
        self.marker = marker

    def apply(self, event: Reading, state: Running, collector: Any) -> None:
        state.count += 1
        collector.emit(event)
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        for folder in self.kept:
            for file in Path(folder).rglob("shuffle_*.data"):
                file.unlink(missing_ok=True)


def spoiling(source: Any, kept: list[str], marker: str, sink: Any) -> Job:
    job = Job("spoiled", checkpoint_every=0)
    diced = job.source(source, id="in").apply(Dicing(), id="dicing")
    diced.sink(sink, id="raw")
    diced.apply(Spoiling(kept, marker), key="sensor", id="spoiling", parallelism=4).sink(sink, id="out")
    return job


class Breaking(Operator[Reading, Reading]):
    """Raises at one value, when it has passed on what came before it."""

    def __init__(self, at: int) -> None:
        self.at = at

    def apply(self, event: Reading, collector: Any) -> None:
        if event.value == self.at:
            raise ValueError(f"broken at {self.at}")
        collector.emit(event)
