"""Mode `batch`: one epoch over all input, in a folder of its own.

The end of the input is fixed when the run first reads it, so that a source that keeps growing does not keep the run from ending.
The next run in the same folder processes what has arrived since.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from streamwork.components import OffsetSource, Slice
from streamwork.components.source import Partitioning, ReadProgress
from streamwork.errors import Refused, StreamworkError
from streamwork.job import Graph, Node

ALL = 2**62


def everything(graph: Graph) -> Graph:
    """The same graph, with sources that put all their input into one epoch."""
    return replace(graph, nodes=tuple(_whole(node) for node in graph.nodes))


def advise_batch(error: StreamworkError) -> StreamworkError:
    """The error with advice for batch runs, if it is about a target that another job owns."""
    if error.code != "SW-SINK-OWNED":
        return error
    return Refused(
        error.code,
        f"{error.cause}; a batch run is a job of its own, and writes to targets of its own",
        "give the batch run other tables or files: build the job in a function of its targets, once for each "
        "(docs/operating.md shows how), and compare or swap them when it is done",
    )


class Whole(OffsetSource[Any]):
    """A source from its first event to the end that it has at the first call of `end`."""

    start = "earliest"
    max_events = ALL

    def __init__(self, source: OffsetSource[Any]) -> None:
        self.event = source.event
        self.unit = source.unit
        self._source = source
        self._ends: dict[str, int] = {}

    def partitions(self) -> list[str]:
        return self._source.partitions()

    def end(self, partition: str, start: int, max_events: int) -> int:
        if partition not in self._ends:
            self._ends[partition] = self._source.end(partition, start, ALL)
        return max(start, min(self._ends[partition], self._source.end(partition, start, max_events)))

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        return self._source.read(partition, start, end)

    def first(self, partition: str) -> int:
        return self._source.first(partition)

    def identity(self) -> str | None:
        return self._source.identity()

    def mark(self, partition: str, end: int) -> str | None:
        return self._source.mark(partition, end)

    def extended(self, partition: str, mark: str, end: int) -> str:
        return self._source.extended(partition, mark, end)

    def recognises(self, partition: str, mark: str) -> bool:
        return self._source.recognises(partition, mark)

    def settle(self) -> None:
        self._source.settle()

    def known_end(self, partition: str, start: int) -> int | None:
        return self._source.known_end(partition, start)

    def keep(self, progress: ReadProgress) -> None:
        """Does nothing: a batch run may be the last one, and a log would be retained for it forever."""

    def partitioning(self) -> Partitioning | None:
        return self._source.partitioning()

    def native(self) -> OffsetSource[Any] | None:
        return self._source.native()


def _whole(node: Node) -> Node:
    if isinstance(node.component, OffsetSource):
        return replace(node, component=Whole(node.component))
    if hasattr(node.component, "get_events"):
        asked = copy.copy(node.component)
        asked.max_events = ALL
        return replace(node, component=asked)
    return node
