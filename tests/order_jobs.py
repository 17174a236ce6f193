"""Jobs that show the order in which events are applied, importable by Spark's workers.

Every item carries where it comes from (source partition and offset) and its trace: the instances that it has passed. A keyed
operator numbers the items of each key, and an operator with instance state those of each instance; both report what they saw.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from streamwork import (
    Event,
    Instance,
    Job,
    KeyedOperator,
    OffsetSource,
    Operator,
    Record,
    StatefulOperator,
    Stream,
    all_instances,
    fields,
    shuffle,
    single,
)
from streamwork.components import Slice

PIECE = 3


class Item(Event):
    a: int
    b: int
    partition: str
    offset: int
    trace: str


class Seen(Event):
    """One application of one item: `number` counts those of one key, or of one instance."""

    by: str
    key: str
    number: int
    partition: str
    offset: int
    trace: str


class Numbers(Record):
    number: int = 0


class Parts(OffsetSource[Item]):
    """Items in several partitions, each with its place in it; `gaps` leaves offsets out."""

    bounded = True
    event = Item

    def __init__(self, name: str, partitions: int, count: int, max_events: int, gaps: int = 1) -> None:
        self.name, self.count, self.max_events, self.gaps = name, count, max_events, gaps
        self._partitions = [str(number) for number in range(partitions)]

    def partitions(self) -> list[str]:
        return self._partitions

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        last = self.count * self.gaps
        return {part: max(start, min(last, start + limit * self.gaps)) for part, start in starts.items()}

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        offsets = [offset for offset in range(start, end) if offset % self.gaps == 0]
        for at in range(0, len(offsets), PIECE):
            some = offsets[at : at + PIECE]
            yield Slice([self._item(partition, offset) for offset in some], some)

    def _item(self, partition: str, offset: int) -> Item:
        draw = random.Random(f"{self.name}/{partition}/{offset}")
        return Item(draw.randrange(4), draw.randrange(3), f"{self.name}/{partition}", offset, "")


def passed(item: Item, name: str, instance: int, b: int | None = None) -> Item:
    return Item(item.a, item.b if b is None else b, item.partition, item.offset, f"{item.trace}>{name}.{instance}")


class Passing(Operator[Item, Item]):
    def __init__(self, name: str) -> None:
        self.name = name

    def setup_instance(self, instance: Instance) -> None:
        self.instance = instance

    def apply(self, event: Item, collector: Any) -> None:
        collector.emit(passed(event, self.name, self.instance))


class Changing(Passing):
    """Gives the field b another value."""

    def apply(self, event: Item, collector: Any) -> None:
        collector.emit(passed(event, self.name, self.instance, (event.b + event.offset) % 3))


class Keyed(KeyedOperator[Item, Numbers, Item]):
    channels = {"seen": Seen}

    def __init__(self, name: str, key: tuple[str, ...]) -> None:
        self.name, self.key = name, key

    def setup_instance(self, instance: Instance) -> None:
        self.instance = instance

    def apply(self, event: Item, state: Numbers, collector: Any) -> None:
        state.number += 1
        key = "/".join(str(getattr(event, name)) for name in self.key)
        collector.emit(Seen(self.name, key, state.number, event.partition, event.offset, event.trace), "seen")
        collector.emit(passed(event, self.name, self.instance))


class Counting(StatefulOperator[Item, Numbers, Item]):
    channels = {"seen": Seen}

    def __init__(self, name: str) -> None:
        self.name = name

    def setup_instance(self, instance: Instance, state: Numbers | None) -> None:
        self.instance = instance
        self.numbers = state or Numbers()

    def get_state(self) -> Numbers:
        return self.numbers

    def apply(self, event: Item, collector: Any) -> None:
        self.numbers.number += 1
        seen = Seen(self.name, f"@{self.instance}", self.numbers.number, event.partition, event.offset, event.trace)
        collector.emit(seen, "seen")
        collector.emit(passed(event, self.name, self.instance))


def is_wanted(item: Item) -> bool:
    return item.offset % 5 != 1


Routed = frozenset[str] | None
"""The fields that decided the way of an item so far; None where its place in a rotation did."""
Promises = dict[tuple[str, str], bool]
"""(operator, the components passed before it) -> are the items of a key and source partition applied in offset order?"""
Sink = Callable[[Stream, str], None]


class Builder:
    """Puts a job together at random, and keeps book of what the contract promises."""

    def __init__(self, seed: int, sink: Sink, count: int = 24) -> None:
        self.random = random.Random(seed)
        self.sink = sink
        self.promises: Promises = {}
        self.job = Job("ordered", checkpoint_every=0, parallelism=self.random.randint(1, 3))
        self.streams: list[tuple[Stream, dict[str, Routed]]] = []
        for number in range(self.random.randint(1, 2)):
            source = Parts(f"in{number}", self.random.randint(1, 3), count, self.random.randint(3, 9))
            source.gaps = self.random.randint(1, 3)
            asked = self.random.choice([None, None, 1, 2])
            self.streams.append((self.job.source(source, id=f"in{number}", parallelism=asked), {"": frozenset()}))
        for place in range(self.random.randint(4, 7)):
            self._grow(place)
        for place, (stream, _) in enumerate(self.streams[-2:]):
            sink(stream, f"end-{place}")

    def _grow(self, place: int) -> None:
        rng, name = self.random, f"n{place}"
        stream, ways = rng.choice(self.streams[-2:])
        if rng.random() < 0.25:
            other, theirs = rng.choice(self.streams)
            stream, ways = stream.union(other), _either(ways, theirs)
        shape = rng.choice(["pass", "narrow", "filter", "change", "keyed", "keyed", "keyed", "group", "count", "count"])
        count = self.job.graph()[stream._inputs[0].node].parallelism
        most = max(self.job.graph()[one.node].parallelism for one in stream._inputs)
        if shape == "filter":
            self.streams.append((stream.filter(is_wanted, id=name), ways))
            return
        if shape == "keyed":
            key = rng.choice([("a",), ("b",), ("a", "b")])
            count = rng.randint(1, 3)
            made = stream.apply(Keyed(name, key), key=key, id=name, parallelism=count)
            for way, routed in ways.items():
                self.promises[name, way] = routed is not None and routed <= set(key)
            self._seen(made, name, {way: _by(routed, key if count > 1 else ()) for way, routed in ways.items()})
            return
        grouping, asked = None, None
        if shape == "narrow":
            asked = rng.randint(1, most)
        elif shape in ("group", "count") and rng.random() < 0.7:
            grouping = rng.choice([shuffle(), fields("a"), fields("b"), single(), all_instances()])
            asked = count = rng.randint(1, 3)
        operator: Any = Changing(name) if shape == "change" else Counting(name) if shape == "count" else Passing(name)
        made = stream.apply(operator, id=name, grouping=grouping, parallelism=asked)
        if grouping in (shuffle(), all_instances()) and count > 1:
            ways = dict.fromkeys(ways)
        elif grouping in (fields("a"), fields("b")) and count > 1:
            ways = {way: _by(routed, grouping.fields) for way, routed in ways.items()}
        if shape == "change":
            ways = {way: _changed(routed, place) for way, routed in ways.items()}
        if shape == "count":
            self._seen(made, name, ways)
        else:
            self.streams.append((made, {f"{way}>{name}": routed for way, routed in ways.items()}))

    def _seen(self, made: Stream, name: str, ways: dict[str, Routed]) -> None:
        self.sink(made.channel("seen"), f"seen-{name}")
        self.streams.append((made, {f"{way}>{name}": routed for way, routed in ways.items()}))


def _either(one: dict[str, Routed], other: dict[str, Routed]) -> dict[str, Routed]:
    """Of two streams with a way in common (they differ by filters alone), what holds for both."""
    merged = {**one, **other}
    for way in one.keys() & other.keys():
        mine, theirs = one[way], other[way]
        merged[way] = None if mine is None or theirs is None else mine | theirs
    return merged


def _by(routed: Routed, more: tuple[str, ...]) -> Routed:
    return None if routed is None else routed | set(more)


def _changed(routed: Routed, place: int) -> Routed:
    return None if routed is None else frozenset(f"b before n{place}" if one == "b" else one for one in routed)
