"""Slices: which part of the input an epoch takes, and which instance reads which part of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from zlib import crc32

from streamwork.components import Position
from streamwork.components.source import EVERYTHING
from streamwork.job import Graph, Node

Ranges = dict[str, dict[str, tuple[int, int]]]  # source -> partition -> from, to


def skips(graph: Graph) -> Position:
    """Where the sources that start at the latest event begin in this life of the job."""
    found: dict[str, int] = {}
    for node in graph.planned:
        if node.component.start == "latest":
            found.update(_named(node, node.component.latest(node.component.partitions())))
    return Position(found)


def starts(graph: Graph, at: Position, skipped: Position) -> Position:
    """Where every partition is read from next: where it was left, or its earliest offset."""
    found = {**at, **{name: offset for name, offset in skipped.items() if offset > at[name]}}
    for node in graph.planned:
        new = [partition for partition in partitions_of(node, at) if f"{node.id}/{partition}" not in found]
        earliest = node.component.earliest(new) if new else {}
        found.update((name, offset) for name, offset in _named(node, earliest).items() if offset)
    return Position(found)


def ends(graph: Graph, start: Position) -> Position:
    """How far an epoch that begins at `start` may read. Each source is asked once."""
    found = dict(start)
    for node in graph.planned:
        mine = starts_of(node, start)
        if mine:
            reached = _named(node, node.component.ends(mine, share_of(node, start)))
            found.update((name, offset) for name, offset in reached.items() if offset > start[name])
    return Position(found)


def share_of(node: Node, at: Position) -> int:
    """How many events of each partition an epoch takes: the source's `max_events`, shared among its partitions."""
    return max(1, int(node.component.max_events) // max(1, len(partitions_of(node, at))))


def known_ends(graph: Graph, start: Position) -> Position:
    """Where the input of every partition ends now, as cheaply as its source can find it."""
    found: dict[str, int] = {}
    for node in graph.planned:
        mine = starts_of(node, start)
        known = node.component.known_ends(mine)
        if unknown := {partition: at for partition, at in mine.items() if partition not in known}:
            known = {**known, **node.component.ends(unknown, EVERYTHING)}
        found.update(_named(node, known))
    return Position(found)


def starts_of(node: Node, at: Position) -> dict[str, int]:
    """Where each partition of a source is read from."""
    return {partition: at[f"{node.id}/{partition}"] for partition in partitions_of(node, at)}


def _named(node: Node, offsets: Mapping[str, int]) -> dict[str, int]:
    return {f"{node.id}/{partition}": offset for partition, offset in offsets.items()}


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
