"""Slices: which part of the input an epoch takes, and which instance reads which part of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from streamwork.components import Position
from streamwork.components.source import EVERYTHING
from streamwork.engine import Extent, Extents
from streamwork.engine.idleness import Idleness
from streamwork.epoch.manifest import Plan
from streamwork.job import Graph, Node


@dataclass(frozen=True)
class Partitions:
    """The partitions of all sources with offsets, as of one plan."""

    names: Mapping[str, Sequence[str]]  # by source
    fixed: frozenset[str]  # the sources whose partitions never change

    @classmethod
    def of(cls, graph: Graph, fixed: frozenset[str]) -> Partitions:
        """Those that the sources have now. Calls each source once."""
        return cls({node.id: tuple(node.component.partitions()) for node in graph.planned}, fixed)

    def with_earlier(self, source: str, at: Position) -> list[str]:
        """Of one source: those that it has now, and those that were read before `at`, so that none is lost silently."""
        return list(dict.fromkeys([*self.names[source], *at.of(source)]))

    def readers(self, node: Node, at: Position) -> dict[str, int]:
        """Partition -> the instance that reads it. It never changes, so that a replay takes the same path."""
        names = self.with_earlier(node.id, at)
        if node.id in self.fixed:
            return {name: place * node.parallelism // len(names) for place, name in enumerate(names)}
        return {name: _number(name) % node.parallelism for name in names}


def _number(partition: str) -> int:
    """The number of a partition that is named by one, so that instances get equally many of them; else one made of its name."""
    return int(partition) if partition.isascii() and partition.isdigit() else crc32(partition.encode())


def fixed(graph: Graph) -> frozenset[str]:
    """The sources whose partitions never change."""
    return frozenset(node.id for node in graph.planned if node.component.fixed_partitions() is not None)


Begins = Mapping[str, Mapping[str, int]]
"""Source with offsets -> partition -> where it is read from."""


Most = Callable[[Node], int]
"""How many events of a source an epoch takes."""


def max_events(node: Node) -> int:
    return int(node.component.max_events)


def skips(graph: Graph) -> Position:
    """Where the sources that start at the latest event begin in this life of the job."""
    found: dict[str, int] = {}
    for node in graph.planned:
        if node.component.start == "latest":
            found.update(_named(node, node.component.latest(node.component.partitions())))
    return Position(found)


def starts(graph: Graph, partitions: Partitions, at: Position, skipped: Position) -> Position:
    """Where every partition is read from next: where it was left, or its earliest offset."""
    found = {**at, **{name: offset for name, offset in skipped.items() if offset > at[name]}}
    for node in graph.planned:
        new = [name for name in partitions.with_earlier(node.id, at) if f"{node.id}/{name}" not in found]
        earliest = node.component.earliest(new) if new else {}
        found.update((name, offset) for name, offset in _named(node, earliest).items() if offset)
    return Position(found)


def begins(graph: Graph, partitions: Partitions, start: Position) -> Begins:
    """Where each partition of each source is read from by an epoch that begins at `start`."""
    return {
        node.id: {name: start[f"{node.id}/{name}"] for name in partitions.with_earlier(node.id, start)}
        for node in graph.planned
    }


def ends(
    graph: Graph, start: Position, begins: Begins, reported: Collection[str] = (), most: Most = max_events
) -> Position:
    """How far an epoch that begins at `start` may read. Calls each source once, unless its instances report its ends."""
    found = dict(start)
    for node in graph.planned:
        mine = {} if node.id in reported else begins[node.id]
        if mine:
            reached = _named(node, node.component.ends(mine, share_of(node, len(mine), most)))
            found.update((name, offset) for name, offset in reached.items() if offset > start[name])
    return Position(found)


def share_of(node: Node, partitions: int, most: Most = max_events) -> int:
    """How many events of each partition an epoch takes: those of the source, shared among so many partitions."""
    return max(1, most(node) // max(1, partitions))


def known_ends(graph: Graph, begins: Begins) -> Position:
    """Where the input of every partition ends now, as cheaply as its source can find it."""
    found: dict[str, int] = {}
    for node in graph.planned:
        mine = begins[node.id]
        known = node.component.known_ends(mine)
        if unknown := {partition: at for partition, at in mine.items() if partition not in known}:
            known = {**known, **node.component.ends(unknown, EVERYTHING)}
        found.update(_named(node, known))
    return Position(found)


def _named(node: Node, offsets: Mapping[str, int]) -> dict[str, int]:
    return {f"{node.id}/{partition}": offset for partition, offset in offsets.items()}


def by_report(graph: Graph, plan: Plan) -> frozenset[str]:
    """The sources whose slices end where their instances report: those that a plan names, and all without offsets."""
    return frozenset((*(plan.reported or ()), *(node.id for node in graph.polled)))


def extents(
    graph: Graph,
    partitions: Partitions,
    nodes: Collection[str],
    instance: int,
    plan: Plan,
    unasked: Collection[str] = (),
    goals: Callable[[str], Mapping[str, int]] = lambda source: {},
    most: Most = max_events,
) -> Extents:
    """What one instance of a chain reads in an epoch. `unasked` are sources without offsets that it does not ask; `goals` are the
    offsets that are not read beyond, by source, where ends are known by report.
    """
    found: Extents = {}
    reported = by_report(graph, plan)
    for node, partition in _read_by(graph, partitions, nodes, instance, plan.start.furthest(plan.end)):
        name, extent = f"{node.id}/{partition}", None
        if node.id in unasked:
            continue
        if node in graph.polled:
            extent = Extent(plan.start[name], limit=most(node))
        elif node.id in reported:
            share = share_of(node, len(partitions.with_earlier(node.id, plan.start)), most)
            extent = Extent(plan.start[name], limit=share, until=goals(node.id).get(partition))
        elif plan.end[name] > plan.start[name]:
            extent = Extent(plan.start[name], plan.end[name])
        if extent is not None:
            found.setdefault(node.id, {})[partition] = extent
    return found


def partition_watermarks(
    graph: Graph, partitions: Partitions, nodes: Collection[str], instance: int, known: dict[str, int]
) -> dict[str, int | None]:
    """The partitions with event time that an instance reads, and how far each has come. A silent one holds all back."""
    read = _read_by(graph, partitions, nodes, instance, Position())
    timed = [f"{node.id}/{partition}" for node, partition in read if node.time is not None]
    return {name: known.get(name) for name in timed}


def idleness(
    graph: Graph, partitions: Partitions, nodes: Collection[str], instance: int, known: Mapping[str, Idleness]
) -> dict[str, Idleness]:
    """Of the partitions that an instance reads, as far as they may be idle."""
    read = _read_by(graph, partitions, nodes, instance, Position())
    names = [f"{node.id}/{partition}" for node, partition in read if node.idle_after is not None]
    return {name: known[name] for name in names if name in known}


def floor_of(
    graph: Graph,
    partitions: Partitions,
    nodes: Collection[str],
    instance: int,
    known: Mapping[str, Idleness],
    floors: Mapping[str, int],
) -> int | None:
    """The minimum that an instance had come to: that of its partitions, wherever they were read; behind an exchange it is the same
    in all instances.
    """
    if any(node.id in nodes for node in graph.sources):
        mine = idleness(graph, partitions, nodes, instance, known).values()
        return min((one.floor for one in mine if one.floor is not None), default=None)
    return max((floors[node] for node in nodes if node in floors), default=None)


def _read_by(
    graph: Graph, partitions: Partitions, nodes: Collection[str], instance: int, at: Position
) -> Iterator[tuple[Node, str]]:
    """The sources and partitions that an instance reads. A source without offsets has one partition for each instance."""
    for node in graph.planned:
        if node.id in nodes:
            for partition, reader in partitions.readers(node, at).items():
                if reader == instance:
                    yield node, partition
    for node in graph.polled:
        if node.id in nodes:
            yield node, str(instance)
