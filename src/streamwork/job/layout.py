"""How a graph is laid out: which components run together as one chain, and where events must be exchanged.

A chain is the steps between two exchanges; each of its instances runs all of its steps. An edge needs an exchange if the events
of one key may come from several instances and the component behind it keeps state by that key, or if a grouping or another
parallelism asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streamwork.components import OffsetSource
from streamwork.errors import WrongUse
from streamwork.job.graph import Graph, Node, NodeKind


@dataclass(frozen=True)
class Edge:
    """From one component to the next: together in one chain, or through an exchange, and why."""

    from_id: str
    to_id: str
    exchange: bool
    why: str


@dataclass(frozen=True)
class ChainSpec:
    """Components that run together."""

    nodes: tuple[str, ...]
    parallelism: int
    is_source: bool


@dataclass(frozen=True)
class Layout:
    """The chains of a graph, each with its components in order, and the edges between components."""

    graph: Graph
    groups: int
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, graph: Graph, groups: int) -> Layout:
        wanted = {
            (one.node, node.id): _edge(graph, graph[one.node], node, groups)
            for node in graph.nodes
            for one in node.inputs
        }
        if not any(edge.exchange for edge in wanted.values()):
            return cls(graph, groups, tuple(wanted.values()))
        # Chains must not wait for each other in a circle: a component joins a chain only if all that it reads is in that one.
        head: dict[str, str] = {}
        edges = []
        for node in graph.nodes:
            mine = [wanted[one.node, node.id] for one in node.inputs]
            heads = {head[edge.from_id] for edge in mine}
            joins = len(heads) == 1 and not any(edge.exchange for edge in mine)
            head[node.id] = heads.pop() if joins else node.id
            why = "what it reads comes from several chains"
            edges += [e if joins or e.exchange else Edge(e.from_id, e.to_id, True, why) for e in mine]
        return cls(graph, groups, tuple(dict.fromkeys(edges)))

    @cached_property
    def chains(self) -> tuple[ChainSpec, ...]:
        """In an order in which each stands behind those that it reads from."""
        together: dict[str, list[str]] = {node.id: [node.id] for node in self.graph.nodes}
        for edge in self.edges:
            first, second = together[edge.from_id], together[edge.to_id]
            if not edge.exchange and first is not second:
                first += second
                together.update((node_id, first) for node_id in second)
        place = {node.id: number for number, node in enumerate(self.graph.nodes)}
        groups = sorted(
            {id(c): sorted(c, key=place.__getitem__) for c in together.values()}.values(), key=lambda c: place[c[0]]
        )
        return tuple(
            ChainSpec(
                tuple(chain),
                self.graph[chain[0]].parallelism,
                any(self.graph[node_id].kind is NodeKind.SOURCE for node_id in chain),
            )
            for chain in groups
        )

    def chain_of(self, node_id: str) -> int:
        return next(number for number, chain in enumerate(self.chains) if node_id in chain.nodes)

    def explain(self) -> str:
        """The layout for people."""
        lines = []
        for number, chain in enumerate(self.chains, 1):
            instances = "1 instance" if chain.parallelism == 1 else f"{chain.parallelism} instances"
            lines.append(f"chain {number} ({instances}): {' -> '.join(chain.nodes)}")
            for edge in self.edges:
                if edge.to_id in chain.nodes and (edge.exchange or self.graph[edge.to_id].key is not None):
                    how = "exchange" if edge.exchange else "no exchange"
                    lines.append(f"  {how} between {edge.from_id} and {edge.to_id}: {edge.why}")
        return "\n".join(lines)

    def check_one_chain(self, host: str) -> None:
        """Refuse a layout that needs an exchange."""
        for edge in self.edges:
            if edge.exchange:
                raise WrongUse(
                    "SW-JOB-EXCHANGE",
                    f"{host} cannot exchange events yet, but {edge.to_id} needs it: {edge.why}",
                    "run with parallelism 1, read from a log that is partitioned by the operator's key into a multiple of "
                    "the parallelism, or use --mode local",
                )


def _edge(graph: Graph, before: Node, node: Node, groups: int) -> Edge:
    def edge(exchange: bool, why: str) -> Edge:
        return Edge(before.id, node.id, exchange, why)

    count = node.parallelism
    if count == 1 == before.parallelism:
        return edge(False, "there is one instance of everything")
    if count != before.parallelism:
        return edge(True, f"{before.id} has parallelism {before.parallelism}, {node.id} has {count}")
    if node.grouping is not None:
        return edge(True, f"grouping {type(node.grouping).__name__.lower()} was asked for")
    if node.key is None:
        return edge(False, "it keeps no state by key, so it may run wherever its events are")
    fields = ", ".join(node.key.fields)
    origin = before
    while getattr(origin.component, "preserves_events", False) and len(origin.inputs) == 1:
        origin = graph[origin.inputs[0].node]  # a filter leaves events where they are
    if origin.kind is not NodeKind.SOURCE:
        return edge(True, f"{before.id} may give events of one {fields} in several instances")
    source: Any = origin.component
    found = source.partitioning() if isinstance(source, OffsetSource) else None
    if found is None:
        return edge(True, f"{origin.id} is not partitioned by {fields}")
    if found.fields != node.key.fields or found.groups != groups:
        theirs = f"{', '.join(found.fields)} in {found.groups} groups"
        return edge(True, f"{origin.id} is partitioned by {theirs}, the key is {fields} in {groups}")
    if found.partitions % count:
        return edge(True, f"parallelism {count} does not divide the {found.partitions} partitions of {origin.id}")
    return edge(
        False,
        f"the log is partitioned by {fields} into {found.partitions} partitions, and parallelism {count} divides them",
    )
