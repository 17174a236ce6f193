"""Slices: which part of the input an epoch takes, and which instance reads which part of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from zlib import crc32

from streamwork.components import Position
from streamwork.components.source import EVERYTHING
from streamwork.engine import Extent, Extents
from streamwork.epoch.manifest import Plan
from streamwork.job import Graph, Node


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


def ends(graph: Graph, start: Position, reported: Collection[str] = ()) -> Position:
    """How far an epoch that begins at `start` may read. Calls each source once, unless its instances report its ends."""
    found = dict(start)
    for node in graph.planned:
        mine = {} if node.id in reported else starts_of(node, start)
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


def by_report(graph: Graph, plan: Plan) -> frozenset[str]:
    """The sources whose slices end where their instances report: those that a plan names, and all without offsets."""
    return frozenset((*(plan.reported or ()), *(node.id for node in graph.polled)))


def extents(graph: Graph, nodes: Collection[str], instance: int, plan: Plan, unasked: Collection[str] = ()) -> Extents:
    """What one instance of a chain reads in an epoch. `unasked` are sources without offsets that it does not ask."""
    found: Extents = {}
    reported = by_report(graph, plan)
    for node, partition in _read_by(graph, nodes, instance, plan.start.furthest(plan.end)):
        name, extent = f"{node.id}/{partition}", None
        if node.id in unasked:
            continue
        if node in graph.polled:
            extent = Extent(plan.start[name], limit=node.component.max_events)
        elif node.id in reported:
            extent = Extent(plan.start[name], limit=share_of(node, plan.start))
        elif plan.end[name] > plan.start[name]:
            extent = Extent(plan.start[name], plan.end[name])
        if extent is not None:
            found.setdefault(node.id, {})[partition] = extent
    return found


def partition_watermarks(
    graph: Graph, nodes: Collection[str], instance: int, known: dict[str, int]
) -> dict[str, int | None]:
    """The partitions with event time that an instance reads, and how far each has come. A silent one holds all back."""
    read = _read_by(graph, nodes, instance, Position())
    timed = [f"{node.id}/{partition}" for node, partition in read if node.time is not None]
    return {name: known.get(name) for name in timed}


def partitions_of(node: Node, at: Position) -> list[str]:
    """The partitions of a source: those that it has now, and those that were read before, so that none is lost silently."""
    now: list[str] = node.component.partitions()
    return list(dict.fromkeys([*now, *at.of(node.id)]))


def _read_by(graph: Graph, nodes: Collection[str], instance: int, at: Position) -> Iterator[tuple[Node, str]]:
    """The sources and partitions that an instance reads. A source without offsets has one partition for each instance."""
    for node in graph.planned:
        if node.id in nodes:
            for partition, reader in _readers(node, partitions_of(node, at)).items():
                if reader == instance:
                    yield node, partition
    for node in graph.polled:
        if node.id in nodes:
            yield node, str(instance)


def _readers(node: Node, partitions: list[str]) -> dict[str, int]:
    """Partition -> the instance that reads it. It never changes, so that a replay takes the same path."""
    if node.component.fixed_partitions() is None:
        return {partition: crc32(partition.encode()) % node.parallelism for partition in partitions}
    return {partition: place * node.parallelism // len(partitions) for place, partition in enumerate(partitions)}
