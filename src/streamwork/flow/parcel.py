"""A parcel: what one instance sends to another where no object can be passed, as a head and some bytes.

Many events go in one parcel, as columns. The parcels of a pair of instances are numbered from 0, so that the receiver sees
whether one is missing, comes twice or comes early, and each names the attempt of its sender.

    EVENTS      `script` tells what is in it, in order; `batches` which bytes hold the events of which way
    CHECKPOINT  the checkpoint event: the last of its epoch; its number tells how many there were before it
    FAILED      the sender has failed: nothing that it has sent counts
    REPORT      to the driver: `Reports`, as JSON
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.columns import Columns, to_structs
from streamwork.components.schema import arrow_schema
from streamwork.flow.blame import Blame
from streamwork.flow.channel import Data, Watermark
from streamwork.flow.lineage import UNTRACKED, Mark, Tracked, marks_of
from streamwork.flow.origins import NONE
from streamwork.flow.times import from_microseconds, microseconds
from streamwork.flow.wiring import Place
from streamwork.job import Input, Layout

WATERMARK, RESUMED = -1, -2  # in a script, in the place of a way


class Kind(IntEnum):
    FAILED = 0
    EVENTS = 1
    CHECKPOINT = 2
    REPORT = 3


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The address and the list of contents."""

    kind: Kind
    epoch: int
    sender: Place
    attempt: str
    to: Place | None = None  # None: the driver
    number: int = -1
    script: tuple[tuple[int, int], ...] = ()  # (way, how many of its events come next), or (WATERMARK, microseconds)
    batches: tuple[tuple[int, int], ...] = ()  # (way, how many bytes)
    marks: tuple[tuple[int, int], ...] = ()  # where events come from, behind the batches: (way, how many bytes)


class Parcel(NamedTuple):
    head: Head
    content: Any = b""  # bytes, or an Arrow buffer


class Wire:
    """Items of a channel as parcels, and back. A way is a number: its place in `Layout.exchanged`."""

    def __init__(self, layout: Layout) -> None:
        self._ways: Sequence[tuple[Input, str]] = layout.exchanged
        self._numbers = {way: number for number, way in enumerate(self._ways)}
        self._blames = [Blame.of(layout.graph, [one]) for one, _ in self._ways]
        self._kinds: list[type[Event]] = []
        for one, _ in self._ways:
            kind = layout.graph[one.node].emits(one.channel)
            assert kind is not None
            self._kinds.append(kind)
        self._tracked = layout.graph.promise.acknowledges
        self._marked = [self._tracked or layout.rotates(layout.chain_of(to)) for _, to in self._ways]

    def pack(self, items: Sequence[Data | Watermark]) -> tuple[dict[str, Any], Any] | None:
        """Script and batches for the head, and the content; None where one batch cannot hold the events of a way."""
        script: list[tuple[int, int]] = []
        events: dict[int, list[Any]] = {}
        for item in items:
            if isinstance(item, Watermark):
                script.append((RESUMED if item.resumed else WATERMARK, microseconds(item.at)))
                continue
            way = self._numbers[item.through, item.to]
            events.setdefault(way, []).append(item.events)
            if script and script[-1][0] == way:
                script[-1] = (way, script[-1][1] + len(item.events))
            else:
                script.append((way, len(item.events)))
        pieces = {way: self._blames[way].columns(self._kinds[way], given) for way, given in events.items()}
        if any(len(mine) > 1 for mine in pieces.values()):
            return None
        written = {way: mine[0].batch.serialize() for way, mine in pieces.items()}
        marks = {way: _packed(given) for way, given in events.items() if self._marked[way]}
        parts = [*written.values(), *marks.values()]
        content = parts[0] if len(parts) == 1 else b"".join(map(memoryview, parts))
        told = {"batches": _sizes(written), "marks": _sizes(marks)}
        return {"script": tuple(script), **told}, content

    def unpack(self, head: Head, content: Any) -> Iterator[Data | Watermark]:
        found: dict[int, pa.RecordBatch] = {}
        start, buffer = 0, pa.py_buffer(content)
        for way, size in head.batches:
            found[way] = pa.ipc.read_record_batch(buffer.slice(start, size), arrow_schema(self._kinds[way]))
            start += size
        marks: dict[int, Any] = {}
        for way, size in head.marks:
            marks[way] = np.frombuffer(buffer.slice(start, size), np.int64).reshape(-1, 2)
            start += size
        # Making objects of a few rows costs almost as much as of many: where ways take turns, all are made at once.
        runs = [way for way, _ in head.script]
        events = {
            way: Columns(self._kinds[way], batch, marks[way][:, 1] if way in marks else None)
            if runs.count(way) == 1 and not self._tracked
            else to_structs(self._kinds[way], batch)
            for way, batch in found.items()
        }
        for way, mine in marks.items():
            if isinstance(found_events := events[way], list):
                events[way] = Tracked(found_events, [Mark(*mark) for mark in mine.tolist()])
        used = dict.fromkeys(found, 0)
        for way, value in head.script:
            if way < 0:
                yield Watermark(head.epoch, from_microseconds(value), way == RESUMED)
                continue
            given, at = events[way], used[way]
            used[way] = at + value
            yield Data(head.epoch, *self._ways[way], given if isinstance(given, Columns) else given[at : at + value])


def _packed(given: list[Any]) -> bytes:
    return np.concatenate([_marks(events) for events in given]).tobytes()


def _marks(events: Any) -> np.ndarray[Any, Any]:
    """A row for each event: its root and its origin."""
    if not isinstance(events, Columns):
        return np.array(marks_of(events), np.int64).reshape(-1, 2)
    origins = np.full(len(events), NONE, np.int64) if events.origins is None else events.origins
    return np.column_stack((np.full(len(events), UNTRACKED, np.int64), origins))


def _sizes(parts: dict[int, Any]) -> tuple[tuple[int, int], ...]:
    return tuple((way, len(part)) for way, part in parts.items())
