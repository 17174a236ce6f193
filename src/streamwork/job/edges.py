"""The edges of a graph: which of them go through an exchange.

An edge needs an exchange as its partitioning says (`job.partitioning`). Others become exchanges, because chains must not wait for
each other in a circle: a component runs in the chain of its input only if all that it reads is there.

A table shares its state with the operators that read it, so they run in one chain (`together`), with everything that lies between
them. Where all that such a group reads is partitioned as the group needs it, and comes from several chains that begin with
sources, these become one chain. So do those of a join's inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from streamwork.components.collector import MAIN
from streamwork.errors import WrongUse
from streamwork.job.backpressure import Backpressure
from streamwork.job.graph import Graph
from streamwork.job.node import Input, Node
from streamwork.job.partitioning import Partitioning, exchange, partitionings


@dataclass(frozen=True)
class Edge:
    """A stream from one component to a port of the next: both in one chain, or through an exchange, and why."""

    from_id: str
    to_id: str
    exchange: bool
    why: str
    channel: str = MAIN
    port: str = MAIN


def edges_of(graph: Graph, groups: int, isolates: bool = False, bounds: bool = False) -> tuple[Edge, ...]:
    """The edges of a graph. Refuses one in which a table cannot run in one chain with an operator that reads its state.

    With `isolates`, an isolated component is a chain of its own. With `bounds`, where channels are bounded, a component that drops
    events when it lags begins a chain: so they are dropped there, and not before.
    """
    streams = partitionings(graph, groups)
    into = {node.id: _edges(graph, node, streams, groups) for node in graph.nodes}
    if isolates:
        into = {node: [_isolated(graph, edge) for edge in edges] for node, edges in into.items()}
    if bounds:
        group_of = {node: group for group in together(graph) for node in group}
        into = {node: [_dropping(graph, edge, group_of[node]) for edge in edges] for node, edges in into.items()}
    if not any(edge.exchange for edges in into.values() for edge in edges):
        return tuple(edge for edges in into.values() for edge in edges)
    found: dict[str, list[Edge]] = {}
    head: dict[str, str] = {}  # component -> the first component of its chain
    for group in together(graph):
        for node in group:
            _check_inside(graph, node, [edge for edge in into[node] if edge.from_id in group], group)
        outside = [edge for node in group for edge in into[node] if edge.from_id not in group]
        heads = {head[edge.from_id] for edge in outside}
        joins = bool(heads) and not any(edge.exchange for edge in outside)
        if joins and len(heads) > 1:
            joins = _are_fused(graph, group, [edge for edges in found.values() for edge in edges], head, heads)
        if joins:
            first = min(heads, key=list(into).index)
            head.update((node, first) for node, theirs in list(head.items()) if theirs in heads)
        else:
            first = group[0]
        for node in group:
            head[node] = first
            found[node] = [edge if joins or edge.from_id in group else _exchanged(edge, group) for edge in into[node]]
    return tuple(edge for node in graph.nodes for edge in found[node.id])


def together(graph: Graph) -> list[tuple[str, ...]]:
    """The components that run in one chain by necessity, group by group; most groups are one component.

    Each group comes after those that it reads from, and each component after its inputs.
    """
    group = {node.id: node.id for node in graph.nodes}

    def unite(one: str, other: str) -> None:
        kept, gone = group[one], group[other]
        group.update((node, kept) for node, theirs in list(group.items()) if theirs == gone)

    shared = [(one.node, node.id) for node in graph.nodes for one in graph.tables_of(node).values()]
    for table, reader in shared:
        unite(table, reader)
    while shared and (circle := _circle(graph, group)) is not None:
        unite(*circle)
    members: dict[str, list[str]] = {}
    for node_id, mine in group.items():
        members.setdefault(mine, []).append(node_id)
    found: list[tuple[str, ...]] = []
    done: set[str] = set()
    waiting = list(members)
    while waiting:
        mine = next(one for one in waiting if _reads(graph, members[one]) - set(members[one]) <= done)
        waiting.remove(mine)
        found.append(tuple(members[mine]))
        done.update(members[mine])
    return found


def _circle(graph: Graph, group: Mapping[str, str]) -> tuple[str, str] | None:
    """Two groups that read from each other, directly or not; None if there are none."""
    before: dict[str, set[str]] = {one: set() for one in group.values()}
    for node_id, mine in group.items():
        before[mine] |= {group[one] for one in _reads(graph, [node_id])} - {mine}
    for start in before:
        reached, waiting = set[str](), [start]
        while waiting:
            for one in before[waiting.pop()]:
                if one == start:
                    continue
                if start in before[one]:
                    return start, one
                if one not in reached:
                    reached.add(one)
                    waiting.append(one)
    return None


def _reads(graph: Graph, nodes: Iterable[str]) -> set[str]:
    return {one.node for node_id in nodes for one in graph[node_id].inputs}


def _check_inside(graph: Graph, node: str, edges: Iterable[Edge], group: tuple[str, ...]) -> None:
    """Refuse an exchange inside a group."""
    for edge in edges:
        if edge.exchange:
            tables = {one.node for name in group for one in graph.tables_of(graph[name]).values()}
            raise WrongUse(
                "SW-TABLE-CHAIN",
                f"{', '.join(sorted(tables))} must run in one chain with everything that reads its state, but between "
                f"{edge.from_id} and {node} events are exchanged: {edge.why}",
                "give them the same key and the same parallelism; and let nothing that is made of a table's events, or of "
                "the join's, come back to the join through another key",
            )


def _are_fused(
    graph: Graph, group: tuple[str, ...], edges: Iterable[Edge], head: Mapping[str, str], heads: set[str]
) -> bool:
    """True if the chains with these heads become one: those of sources, which read from no other chain, before a join."""
    if not any(len(graph[node].ports) > 1 for node in group):
        return False
    return not any(edge.exchange and head[edge.to_id] in heads for edge in edges)


def _isolated(graph: Graph, edge: Edge) -> Edge:
    alone = [node for node in (edge.from_id, edge.to_id) if graph[node].isolated]
    return replace(edge, exchange=True, why=f"{alone[0]} is isolated") if alone and not edge.exchange else edge


def _dropping(graph: Graph, edge: Edge, group: tuple[str, ...]) -> Edge:
    """A join reads the state of its tables, so nothing is dropped between them: it is dropped before both."""
    if edge.exchange or edge.from_id in group or graph[edge.to_id].backpressure is not Backpressure.DROP:
        return edge
    return replace(edge, exchange=True, why=f"new events for {edge.to_id} are dropped while it lags")


def _exchanged(edge: Edge, group: tuple[str, ...]) -> Edge:
    if edge.exchange:
        return edge
    who = edge.to_id if len(group) == 1 else f"{edge.to_id}, or what runs in one chain with it,"
    return replace(edge, exchange=True, why=f"{who} also reads from another chain")


def _edges(graph: Graph, node: Node, streams: Mapping[Input, Partitioning], groups: int) -> list[Edge]:
    """The edges that end in a component, each as its partitioning asks for it."""
    found = []
    tables = graph.tables_of(node)
    for port in node.ports:
        for one in port.inputs:
            before = graph[one.node]
            kind = before.emits(one.channel)
            assert kind is not None
            if port.name in tables and before.parallelism == node.parallelism:
                needed, why = False, f"it reads the state of {before.id}"
            else:
                needed, why = exchange(node, port, before, kind, streams[one], groups)
            found.append(Edge(before.id, node.id, needed, why, one.channel, port.name))
    return found
