"""Mode `batch`: one epoch over all input, in a folder of its own.

The end of the input is fixed when the run first reads it, so that a source that keeps growing does not keep the run from ending.
The next run in the same folder processes what has arrived since.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamwork.components import OffsetSource, Slice
from streamwork.components.source import EVERYTHING, Partitioning, ReadProgress
from streamwork.errors import Refused, StreamworkError
from streamwork.job import Graph, Node


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
    """A source from its first event to the end that it has at the first call of `ends`; or to given offsets, by partition."""

    start = "earliest"
    max_events = EVERYTHING

    def __init__(self, source: OffsetSource[Any], ends: Mapping[str, int] | None = None) -> None:
        self.event = source.event
        self.unit = source.unit
        self._source = source
        self._ends: dict[str, int] = dict(ends or {})
        self._is_given = ends is not None

    def partitions(self) -> list[str]:
        known = self._source.partitions()
        return [one for one in known if one in self._ends] if self._is_given else known

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        """The whole input at the time a partition was first planned. Ignores the limit."""
        if new := {partition: start for partition, start in starts.items() if partition not in self._ends}:
            self._ends.update(self._source.ends(new, EVERYTHING))
        return {partition: max(start, self._ends[partition]) for partition, start in starts.items()}

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        return self._source.read(partition, start, end)

    def earliest(self, partitions: Sequence[str]) -> Mapping[str, int]:
        return self._source.earliest(partitions)

    def mark(self, partition: str, end: int) -> str | None:
        return self._source.mark(partition, end)

    def extended(self, partition: str, mark: str, end: int) -> str:
        return self._source.extended(partition, mark, end)

    def recognises(self, partition: str, mark: str) -> bool:
        return self._source.recognises(partition, mark)

    def sync(self) -> None:
        self._source.sync()

    def known_ends(self, starts: Mapping[str, int]) -> Mapping[str, int]:
        return self._source.known_ends(starts)

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
        asked.max_events = EVERYTHING
        return replace(node, component=asked)
    return node
