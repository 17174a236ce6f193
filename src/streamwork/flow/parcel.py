"""A parcel: what one instance sends to another where no object can be passed, as a head and some bytes.

Many events go in one parcel, as columns. The parcels of a pair of instances are numbered from 0, so that the receiver detects a
missing, repeated or early one, and each names the attempt of its sender.

    EVENTS      `parts` lists the batches in it, each with its side columns; `advances` follow, then `watermark`
    CHECKPOINT  the checkpoint event: the last parcel of its epoch
    FAILED      the sender has failed: nothing that it has sent counts
    REPORT      to the driver: `Reports`, as JSON
    IDLE        the sender is idle, or wakes up
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.columns import Columns
from streamwork.components.schema import arrow_schema
from streamwork.components.times import from_microseconds, microseconds
from streamwork.flow.batch import Batch, Given
from streamwork.flow.blame import Blame
from streamwork.flow.channel import NO_ADVANCES, Advances, Data, Part, Watermark
from streamwork.flow.lineage import Array, Lineage, column_of
from streamwork.flow.needs import Needs
from streamwork.flow.row_codec import MOST_ROWS, RowCodec
from streamwork.flow.wiring import Place
from streamwork.job import Layout
from streamwork.job.layout import Way


class Kind(IntEnum):
    FAILED = 0
    EVENTS = 1
    CHECKPOINT = 2
    REPORT = 3
    IDLE = 4


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The address and the list of contents."""

    kind: Kind
    epoch: int
    sender: Place
    attempt: str
    to: Place | None = None  # None: the driver
    number: int = -1
    # Way, bytes of its batch, its side columns; how many events, if they are not columns.
    parts: tuple[tuple[int, int, tuple[str, ...], int], ...] = ()
    events: int = 0  # how many, in all parts
    advances: int = 0  # how many
    resumed: int | None = None  # a watermark before everything else, where the sender begins
    watermark: int | None = None  # a watermark after everything else
    idle: bool = False  # of IDLE
    is_resumed: bool = False  # of IDLE
    sent: int | None = None  # of CHECKPOINT, as in `CheckpointEvent`
    dropped: tuple[tuple[str, int], ...] = ()


class TimedHead(Head, frozen=True, array_like=True):
    """Of a parcel with events in live mode. Others have a shorter head."""

    began: float | None = None  # as in `Data` and `Watermark`, of the oldest item


class Parcel(NamedTuple):
    head: Head
    content: Any = b""  # bytes, or an Arrow buffer


class Wire:
    """Converts items of a channel to parcels and back. A way is a number: its place in `Layout.exchanged`."""

    def __init__(self, layout: Layout, rows: bool = False) -> None:
        """With `rows`, a few events go without columns where that is possible (`flow.row_codec`)."""
        self._ways: Sequence[Way] = layout.exchanged
        self._numbers = {way: number for number, way in enumerate(self._ways)}
        self._blames = [Blame.of(layout.graph, [one]) for one, _, _ in self._ways]
        self._kinds: list[type[Event]] = []
        for one, _, _ in self._ways:
            kind = layout.graph[one.node].emits(one.channel)
            assert kind is not None
            self._kinds.append(kind)
        self._schemas = [arrow_schema(kind) for kind in self._kinds]
        self._codecs = [RowCodec.of(kind) if rows else None for kind in self._kinds]
        self._columns = [Needs.of(layout, layout.chain_of(to)).columns for _, to, _ in self._ways]

    def pack(self, items: Sequence[Data | Watermark]) -> tuple[dict[str, Any], Any] | None:
        """The fields of the head, and the content; None where one batch cannot hold the events of a way.

        Events of several items keep their order where they carry moments; else each way keeps its own.
        """
        head: dict[str, Any] = {}
        batches: dict[int, list[Batch]] = {}
        advances: list[Advances] = []
        base, began = 0, None
        for item in items:
            if item.began is not None:
                began = item.began if began is None else min(began, item.began)
            if isinstance(item, Watermark):
                head["resumed" if item.resumed else "watermark"] = microseconds(item.at)
                continue
            last = base
            base -= min([0, *(int(p.batch.moments[0]) for p in item.parts if p.batch.moments is not None)])
            for through, to, batch, port in item.parts:
                moments = batch.moments
                if moments is not None and len(moments):
                    batch = batch.at(moments + base)
                    last = max(last, base + int(moments[-1]) + 1)
                batches.setdefault(self._numbers[Way(through, to, port)], []).append(batch)
            if len(item.advances.moments):
                advances.append(Advances(item.advances.moments + base, item.advances.times))
                last = max(last, base + int(item.advances.moments[-1]) + 1)
            base = last
        parts: list[tuple[int, int, tuple[str, ...], int]] = []
        content: list[Any] = []
        for way, mine in batches.items():
            rows, written = self._as_rows(way, mine)
            if written is None:
                pieces = self._blames[way].columns(self._kinds[way], [batch.given for batch in mine])
                if len(pieces) > 1:
                    return None
                written = pieces[0].batch.serialize()
            sides = self._sides(way, mine)
            parts.append((way, len(written), tuple(sides), rows))
            content += [written, *(column.tobytes() for column in sides.values())]
        if advances:
            head["advances"] = sum(len(some.times) for some in advances)
            content += [np.concatenate([some.moments for some in advances]).tobytes()]
            content += [np.concatenate([some.times for some in advances]).tobytes()]
        if began is not None:
            head["began"] = began
        events = sum(len(batch) for mine in batches.values() for batch in mine)
        return {"parts": tuple(parts), "events": events, **head}, content[0] if len(content) == 1 else b"".join(
            map(memoryview, content)
        )

    def _as_rows(self, way: int, batches: Sequence[Batch]) -> tuple[int, Any]:
        """A few events without columns, and how many; (0, None) if they go as columns."""
        codec, count = self._codecs[way], sum(map(len, batches))
        if codec is None or count > MOST_ROWS:
            return 0, None
        written = codec.encode([event for batch in batches for event in batch.events])
        return (0, None) if written is None else (count, written)

    def _sides(self, way: int, batches: Sequence[Batch]) -> dict[str, Array]:
        """The side columns that the chain at the other end needs, as far as there are any."""
        given = [(batch.lineage, len(batch)) for batch in batches]
        present = {name for lineage, _ in given if lineage is not None for name in lineage.columns}
        return {name: column_of(given, name) for name in ("moments", *self._columns[way]) if name in present}

    def unpack(self, head: Head, content: Any) -> Iterator[Data | Watermark]:
        began = head.began if isinstance(head, TimedHead) else None
        if head.resumed is not None:
            yield Watermark(head.epoch, from_microseconds(head.resumed), True)
        reader = _Reader(pa.py_buffer(content))
        parts = []
        for way, size, names, count in head.parts:
            given: Given
            if count:
                codec = self._codecs[way]
                assert codec is not None, "both ends use the same wire"
                given = codec.decode(reader.bytes(size))
            else:
                given = Columns(self._kinds[way], pa.ipc.read_record_batch(reader.bytes(size), self._schemas[way]))
            columns = {name: reader.numbers(len(given)) for name in names}
            lineage = Lineage(**columns) if columns else None
            through, to, port = self._ways[way]
            parts.append(Part(through, to, Batch(given, lineage), port))
        advances = NO_ADVANCES
        if head.advances:
            advances = Advances(reader.numbers(head.advances), reader.numbers(head.advances))
        if parts or head.advances:
            yield Data(head.epoch, tuple(parts), advances, began)
        if head.watermark is not None:
            yield Watermark(head.epoch, from_microseconds(head.watermark), began=began)


class _Reader:
    """Reads a buffer from its beginning on."""

    def __init__(self, buffer: pa.Buffer) -> None:
        self._buffer = buffer
        self._at = 0

    def bytes(self, size: int) -> pa.Buffer:
        self._at += size
        return self._buffer.slice(self._at - size, size)

    def numbers(self, count: int) -> Array:
        return np.frombuffer(self.bytes(8 * count), np.int64)
