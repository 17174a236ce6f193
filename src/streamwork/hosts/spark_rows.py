"""Parcels as rows of a Spark stage, and the places that they go to.

    __instance  the partition of the next stage
    __order     the parcels of all senders in turn, those of each by number; first of all, that one has failed
    head        the parcel's head, packed
    content     its bytes

A stage runs all chains that can run at the same time; its partitions are their instances, one after another. A parcel for a
later stage, or for the driver, goes through a partition of each stage between, which hands it on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.engine import Head, Kind, Parcel
from streamwork.errors import JobFailed
from streamwork.flow.wiring import Place
from streamwork.job import Layout

ROW_SCHEMA = "__instance int, __order long, head binary, content binary"
BATCH_BYTES = 1_000_000  # small parcels share a batch
MOST_BYTES = 2**31 - 1  # that a binary column of Arrow's, and a row of Spark's, can hold

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Head).decode


def places(layout: Layout, stage: int) -> list[Place]:
    """Partition -> chain and instance."""
    return [(chain, i) for chain in layout.stages[stage] for i in range(layout.chains[chain].parallelism)]


class Rows:
    """Makes the output rows of a stage."""

    def __init__(self, layout: Layout, stage: int) -> None:
        self._next: dict[Place | None, int] = {place: number for number, place in enumerate(places(layout, stage + 1))}

    def batches(self, parcels: Iterable[Parcel]) -> Iterator[pa.RecordBatch]:
        waiting: list[Parcel] = []
        size = 0
        for parcel in parcels:
            if waiting and size + len(parcel.content) > MOST_BYTES:
                yield self._batch(waiting)
                waiting, size = [], 0
            waiting.append(parcel)
            size += len(parcel.content)
            if size >= BATCH_BYTES:
                yield self._batch(waiting)
                waiting, size = [], 0
        if waiting:
            yield self._batch(waiting)

    def _batch(self, parcels: list[Parcel]) -> pa.RecordBatch:
        heads = [parcel.head for parcel in parcels]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(map(self._partition, heads), pa.int32(), size=len(heads)),
                pa.array(map(_order, heads), pa.int64(), size=len(heads)),
                pa.array(map(_encode, heads), pa.binary(), size=len(heads)),
                _binary([parcel.content for parcel in parcels]),
            ],
            names=["__instance", "__order", "head", "content"],
        )

    def _partition(self, head: Head) -> int:
        if (found := self._next.get(head.to)) is not None:
            return found
        # To be forwarded. All parcels from one instance to another take one path, so they are of one attempt.
        return (head.sender[1] + (0 if head.to is None else head.to[1])) % len(self._next)


def parcels(batches: Iterable[pa.RecordBatch]) -> Iterator[Parcel]:
    """The parcels that rows hold. Contents are not copied."""
    for batch in batches:
        contents = batch.column("content")
        for number, head in enumerate(batch.column("head").to_pylist()):
            yield Parcel(_decode(head), contents[number].as_buffer())


def _order(head: Head) -> int:
    """A sort key: merging the parcels of several senders gives the same, fair order each time."""
    if head.kind is Kind.FAILED:
        return -1
    chain, instance = head.sender
    return head.number << 32 | chain << 16 | instance


def _binary(contents: list[pa.Buffer | bytes]) -> pa.Array:
    """A column of large values; a single one is not copied."""
    if (size := sum(map(len, contents))) > MOST_BYTES:
        raise JobFailed(
            "SW-EVENT-SIZE",
            f"one event takes {size:,} bytes, which is more than Spark's rows can hold ({MOST_BYTES:,})",
            "keep large content in files and send their paths, or run the job with --mode local",
        )
    offsets = np.cumsum([0, *map(len, contents)], dtype=np.int32)
    data = pa.py_buffer(contents[0]) if len(contents) == 1 else pa.py_buffer(b"".join(map(memoryview, contents)))
    return pa.Array.from_buffers(pa.binary(), len(contents), [None, pa.py_buffer(offsets), data])
