"""Partitioning: which instance of a component holds which events of a stream. A pure function of the graph.

    ByKey       events with equal values of some fields are in one instance: that of their key group
    BySource    the events of a source partition are in the instance that reads it
    Unknown     nothing is known, and why

It is carried along the edges. An exchange by key makes it `ByKey`; a filter keeps it, and so does an operator that declares
``keeps_key = True``; another operator may change the fields, so behind it `ByKey` is lost. A keyed operator needs no exchange where
its input is partitioned by exactly its key: same fields in the same order, same types, same number of groups and of instances. Then
each key is in the instance that holds its state, with an exchange or without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from streamwork.components import Event, OffsetSource
from streamwork.components.collector import MAIN
from streamwork.components.grouping import Fields
from streamwork.components.schema import fields_of
from streamwork.components.source import Partitioning as SourcePartitioning
from streamwork.errors import StreamworkError
from streamwork.job.graph import Graph
from streamwork.job.node import Input, Node, NodeKind, Port, arrow_types
from streamwork.wording import plural


@dataclass(frozen=True)
class ByKey:
    """An event is in instance ``group * instances // groups``, where `group` is that of its values of `fields`."""

    fields: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    groups: int
    instances: int
    why: str = field(default="", compare=False)


@dataclass(frozen=True)
class BySource:
    """The events of one source partition are in one instance. `partitioning` is how the source spreads keys, if it says so."""

    source: str
    instances: int
    partitioning: SourcePartitioning | None = None


@dataclass(frozen=True)
class Unknown:
    """Events of one key may be in several instances."""

    why: str = field(compare=False)


Partitioning = ByKey | BySource | Unknown


def partitionings(graph: Graph, groups: int) -> dict[Input, Partitioning]:
    """The partitioning of every stream of a graph: of each channel of each component."""
    found: dict[Input, Partitioning] = {}
    for node in graph.nodes:
        if node.kind is NodeKind.SOURCE:
            arriving = _of_source(node, groups)
        else:
            arriving = _arriving(node, [found[one] for one in node.inputs], graph, groups)
        for channel in (MAIN, *node.channels):
            found[Input(node.id, channel)] = _emitted(node, channel, arriving)
    return found


def wanted(node: Node, port: Port, kind: type[Event], groups: int) -> ByKey | None:
    """The partitioning that an exchange before this port makes of events of this type; None if it does not go by fields."""
    fields = port.key.fields if port.key is not None else ()
    if isinstance(port.grouping, Fields):
        fields = port.grouping.fields
    return ByKey(fields, arrow_types(kind, fields), groups, node.parallelism) if fields else None


def exchange(
    node: Node, port: Port, before: Node, kind: type[Event], stream: Partitioning, groups: int
) -> tuple[bool, str]:
    """Whether the events of a stream of `before` must be exchanged to reach a port of `node`, and why."""
    if node.parallelism == 1 == before.parallelism:
        return False, "there is one instance of everything"
    if node.parallelism != before.parallelism:
        return True, f"{before.id} has parallelism {before.parallelism}, {node.id} has {node.parallelism}"
    if port.grouping is not None:
        return True, f"grouping {type(port.grouping).__name__.lower()} is declared"
    target = wanted(node, port, kind, groups)
    if target is None:
        return False, "it keeps no state by key, so it may run wherever its events are"
    if stream == target:
        assert isinstance(stream, ByKey)
        return False, stream.why
    return True, _mismatch(stream, target)


def _mismatch(stream: Partitioning, target: ByKey) -> str:
    """Why events with this partitioning must be exchanged to have that one."""
    key = ", ".join(target.fields)
    match stream:
        case Unknown(why):
            return f"events of one {key} may be in several instances: {why}"
        case BySource(source, _, None):
            return f"{source} is not partitioned by {key}"
        case BySource(source, instances, found) if found is not None:
            if (found.fields, found.groups) == (target.fields, target.groups):
                partitions = plural(found.partitions, "partition")
                return f"parallelism {instances} does not divide the {partitions} of {source}"
            theirs = f"{', '.join(found.fields)} in {found.groups} groups"
            return f"{source} is partitioned by {theirs}, the key is {key} in {target.groups}"
        case ByKey(fields, types, groups):
            theirs = f"{', '.join(fields)} in {groups} groups"
            other = " of another type" if fields == target.fields and types != target.types else ""
            return f"its input is partitioned by {theirs}, the key is {key}{other} in {target.groups}"
    raise AssertionError(stream)


def _of_source(node: Node, groups: int) -> Partitioning:
    count = node.parallelism
    found = _told(node.component) if count > 1 else None
    if found is None or found.groups != groups or found.partitions % count or node.gives is None:
        return BySource(node.id, count, found)
    fields = ", ".join(found.fields)
    partitions = plural(found.partitions, "partition")
    why = f"the log is partitioned by {fields} into {partitions}, and parallelism {count} divides them"
    return ByKey(found.fields, arrow_types(node.gives, found.fields), groups, count, why)


def _told(source: Any) -> SourcePartitioning | None:
    try:
        return source.partitioning() if isinstance(source, OffsetSource) else None
    except StreamworkError:  # the input is not there yet; the run reports it when it plans
        return None


def _arriving(node: Node, streams: Sequence[Partitioning], graph: Graph, groups: int) -> Partitioning:
    """The partitioning of the events that the instances of a component get, by whichever way they come."""
    if node.is_routed:
        made = [_at_port(node, port, graph, groups) for port in node.ports]
        return (
            made[0] if all(one == made[0] for one in made) else Unknown(f"the ports of {node.id} have different keys")
        )
    instances = {graph[one.node].parallelism for one in node.inputs}
    if instances != {node.parallelism}:
        return Unknown(f"{node.id} has another parallelism than what it reads")
    if any(one != streams[0] for one in streams):
        return Unknown(f"the inputs of {node.id} are partitioned in different ways")
    return streams[0]


def _at_port(node: Node, port: Port, graph: Graph, groups: int) -> Partitioning:
    first = port.inputs[0]
    kind = graph[first.node].emits(first.channel)
    target = wanted(node, port, kind, groups) if kind is not None else None
    if target is not None:
        return replace(target, why=f"{node.id} has the key {', '.join(target.fields)}")
    return Unknown(f"grouping {type(port.grouping).__name__.lower()} of {node.id}")


def _emitted(node: Node, channel: str, arriving: Partitioning) -> Partitioning:
    """The partitioning of what a component emits: in the instance that got the event, with fields that it may have changed."""
    kind = node.emits(channel)
    if not isinstance(arriving, ByKey) or node.kind is NodeKind.SOURCE or kind is None:
        return arriving
    fields = ", ".join(arriving.fields)
    if not getattr(node.component, "keeps_key", False):
        return Unknown(f"{node.id} may change {fields}: it does not declare keeps_key = True")
    known = fields_of(kind)
    if any(name not in known for name in arriving.fields):
        return Unknown(f"{node.id} emits {kind.__name__}, which has no {fields}")
    if arrow_types(kind, arriving.fields) != arriving.types:
        return Unknown(f"{node.id} emits {kind.__name__}, whose {fields} has another type")
    return replace(
        arriving, why=f"{arriving.why} and keeps it" if node.key else f"{arriving.why}, and {node.id} keeps it"
    )
