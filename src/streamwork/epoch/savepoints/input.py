"""Is the input behind a savepoint still there? A log may have removed it: its retention does not know copies of a savepoint."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from streamwork.components import Position
from streamwork.job import Graph


class MissingInput(msgspec.Struct, frozen=True):
    """Input behind a savepoint that is gone: retention of the source has removed it."""

    source: str
    partition: str
    needed: int
    earliest: int

    def __str__(self) -> str:
        return f"{self.source}/{self.partition} is needed from {self.needed:,} on, and begins at {self.earliest:,}"


def missing_input(graph: Graph, at: Position) -> Iterator[MissingInput]:
    """The partitions whose input begins behind this position. A source that has them not at all is another matter."""
    for node in graph.planned:
        mine = at.of(node.id)
        there = set(node.component.partitions())
        earliest = node.component.earliest([partition for partition in mine if partition in there])
        for partition, first in earliest.items():
            if first > mine[partition]:
                yield MissingInput(node.id, partition, mine[partition], first)
