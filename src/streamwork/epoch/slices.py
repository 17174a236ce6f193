"""Slices: which part of the input an epoch takes, and which instance reads which part of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

from streamwork.components import OffsetSource, Position
from streamwork.job import Graph, Node

EVERYTHING = 2**62  # events
Ranges = dict[str, dict[str, tuple[int, int]]]  # source -> partition -> from, to


def skips(graph: Graph) -> Position:
    """Where the sources that skip to the latest event begin in this life of the job."""
    return Position(
        {
            f"{node.id}/{partition}": node.component.latest(partition)
            for node in graph.planned
            if node.component.start == "latest"
            for partition in node.component.partitions()
        }
    )


def starts(graph: Graph, at: Position, skipped: Position) -> Position:
    """Where every partition is read from next: from where it was left, or from the first offset there is."""
    found = {**at, **{name: offset for name, offset in skipped.items() if offset > at[name]}}
    for node in graph.planned:
        source: OffsetSource[Any] = node.component
        for partition in partitions_of(node, at):
            name = f"{node.id}/{partition}"
            if name not in found and (first := source.first(partition)):
                found[name] = first
    return Position(found)


def ends(graph: Graph, start: Position, max_events: int | None = None) -> Position:
    """How far an epoch that begins at `start` may go: each source's `max_events`, shared among its partitions."""
    found = dict(start)
    for node in graph.planned:
        source: OffsetSource[Any] = node.component
        partitions = partitions_of(node, start)
        share = max(1, source.max_events // max(1, len(partitions))) if max_events is None else max_events
        for partition in partitions:
            name = f"{node.id}/{partition}"
            reached = source.end(partition, start[name], share)
            if reached > start[name]:
                found[name] = reached
    return Position(found)


def known_ends(graph: Graph, start: Position) -> Position:
    """Where the input ends now, of every partition, as cheaply as its source can tell."""
    found: dict[str, int] = {}
    for node in graph.planned:
        for partition in partitions_of(node, start):
            read = start[f"{node.id}/{partition}"]
            end = node.component.known_end(partition, read)
            found[f"{node.id}/{partition}"] = node.component.end(partition, read, EVERYTHING) if end is None else end
    return Position(found)


def ranges(graph: Graph, nodes: Iterable[str], instance: int, start: Position, end: Position) -> Ranges:
    """What one instance of a chain reads."""
    share: Ranges = {}
    for name, partition, full in _partitions(graph, nodes, instance, end):
        if end[full] > start[full]:
            share.setdefault(name, {})[partition] = (start[full], end[full])
    return share


def timed_partitions(graph: Graph, nodes: Iterable[str], instance: int, known: dict[str, int]) -> dict[str, int | None]:
    """The partitions with event time that an instance reads, and how far each has come. A silent one holds all back."""
    timed = [full for name, _, full in _partitions(graph, nodes, instance, Position()) if graph[name].time is not None]
    timed += [f"{node.id}/{instance}" for node in graph.polled if node.id in nodes and node.time is not None]
    return {full: known.get(full) for full in timed}


def partitions_of(node: Node, at: Position) -> list[str]:
    """The partitions of a source: those that it has now, and those that were read before, so that none is lost silently."""
    now: list[str] = node.component.partitions()
    return list(dict.fromkeys([*now, *at.of(node.id)]))


def _partitions(graph: Graph, nodes: Iterable[str], instance: int, at: Position) -> Iterator[tuple[str, str, str]]:
    """(source, partition, both) of what an instance reads."""
    for node in graph.planned:
        if node.id in nodes:
            for partition, reader in _readers(node, partitions_of(node, at)).items():
                if reader == instance:
                    yield node.id, partition, f"{node.id}/{partition}"


def _readers(node: Node, partitions: list[str]) -> dict[str, int]:
    """Partition -> the instance that reads it. It never moves: what was read again after a fall back goes the same way."""
    if node.component.fixed_partitions() is None:
        return {partition: crc32(partition.encode()) % node.parallelism for partition in partitions}
    return {partition: place * node.parallelism // len(partitions) for place, partition in enumerate(partitions)}
