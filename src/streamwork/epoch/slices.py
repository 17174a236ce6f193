"""Slices: which part of the input an epoch takes, and which instance reads which part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamwork.components import OffsetSource, Position
from streamwork.job import Graph

CLOCK = "clock"  # the component of a position that processing time is
Ranges = dict[str, dict[str, tuple[int, int]]]  # source -> partition -> from, to


def starts(graph: Graph, at: Position) -> Position:
    """Where every partition is read from next: from where it was left, or from the first offset there is."""
    found = dict(at)
    for node in graph.sources:
        source: OffsetSource[Any] = node.component
        for partition in source.partitions():
            name = f"{node.id}/{partition}"
            if name not in found and (first := source.first(partition)):
                found[name] = first
    return found


def ends(graph: Graph, start: Position, max_events: int | None = None) -> Position:
    """How far an epoch that begins at `start` may go: each source's `max_events`, shared among its partitions."""
    found = dict(start)
    for node in graph.sources:
        source: OffsetSource[Any] = node.component
        partitions = source.partitions()
        share = max(1, source.max_events // max(1, len(partitions))) if max_events is None else max_events
        for partition in partitions:
            name = f"{node.id}/{partition}"
            reached = source.end(partition, start.get(name, 0), share)
            if reached > start.get(name, 0):
                found[name] = reached
    return found


def ranges(graph: Graph, start: Position, end: Position, parallelism: int) -> list[Ranges]:
    """Per instance, what it reads. Neighbouring partitions go to one instance, as key groups do."""
    shares: list[Ranges] = [{} for _ in range(parallelism)]
    for node in graph.sources:
        partitions: Sequence[str] = node.component.partitions()
        for place, partition in enumerate(partitions):
            name = f"{node.id}/{partition}"
            if end.get(name, 0) > start.get(name, 0):
                share = shares[place * parallelism // len(partitions)]
                share.setdefault(node.id, {})[partition] = (start.get(name, 0), end[name])
    return shares


def timed_partitions(graph: Graph, instance: int, parallelism: int, known: dict[str, int]) -> dict[str, int | None]:
    """The partitions with event time that an instance reads, and how far each has come. One that is silent holds all back."""
    found: dict[str, int | None] = {}
    for node in graph.sources:
        partitions = node.component.partitions() if node.time is not None else []
        for place, partition in enumerate(partitions):
            if place * parallelism // len(partitions) == instance:
                name = f"{node.id}/{partition}"
                found[name] = known.get(name)
    return found
