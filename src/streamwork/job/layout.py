"""How a graph is laid out: which components run together as one chain, and where events must be exchanged.

A chain is the steps between two exchanges; each of its instances runs all of its steps. An edge needs an exchange if the events
of one key may come from several instances and the component behind it keeps state by that key.
"""

from __future__ import annotations

from dataclasses import dataclass

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
class Layout:
    """The chains of a graph, each with its components in order, and the edges between components."""

    graph: Graph
    parallelism: int
    groups: int
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, graph: Graph, parallelism: int, groups: int) -> Layout:
        edges = [_edge(graph[one.node], node, parallelism, groups) for node in graph.nodes for one in node.inputs]
        return cls(graph, parallelism, groups, tuple(edges))

    @property
    def chains(self) -> list[list[str]]:
        chain_of: dict[str, list[str]] = {node.id: [node.id] for node in self.graph.nodes}
        for edge in self.edges:
            first, second = chain_of[edge.from_id], chain_of[edge.to_id]
            if not edge.exchange and first is not second:
                first += second
                chain_of.update((node_id, first) for node_id in second)
        order = {node.id: place for place, node in enumerate(self.graph.nodes)}
        distinct = {id(chain): sorted(chain, key=order.__getitem__) for chain in chain_of.values()}
        return sorted(distinct.values(), key=lambda chain: order[chain[0]])

    def explain(self) -> str:
        """The layout for people."""
        instances = "1 instance" if self.parallelism == 1 else f"{self.parallelism} instances"
        lines = []
        for number, chain in enumerate(self.chains, 1):
            lines.append(f"chain {number} ({instances}): {' -> '.join(chain)}")
            inside = [edge for edge in self.edges if edge.to_id in chain and self.graph[edge.to_id].key is not None]
            for edge in inside:
                how = "exchange" if edge.exchange else "no exchange"
                lines.append(f"  {how} between {edge.from_id} and {edge.to_id}: {edge.why}")
        return "\n".join(lines)

    def check_one_chain(self) -> None:
        """Refuse a layout that needs an exchange."""
        for edge in self.edges:
            if edge.exchange:
                raise WrongUse(
                    "SW-JOB-EXCHANGE",
                    f"with parallelism {self.parallelism}, {edge.to_id} needs an exchange: {edge.why}",
                    "run with parallelism 1, or read from a log that is partitioned by the operator's key into a "
                    "multiple of the parallelism",
                )


def _edge(before: Node, node: Node, parallelism: int, groups: int) -> Edge:
    def edge(exchange: bool, why: str) -> Edge:
        return Edge(before.id, node.id, exchange, why)

    if parallelism == 1:
        return edge(False, "there is one instance of everything")
    if node.key is None:
        return edge(False, "it keeps no state, so it may run wherever its events are")
    fields = ", ".join(node.key.fields)
    if before.kind is not NodeKind.SOURCE:
        return edge(True, f"{before.id} may give events of one {fields} in several instances")
    source: OffsetSource[object] = before.component  # type: ignore[type-var]
    found = source.partitioning()
    if found is None:
        return edge(True, f"{before.id} is not partitioned by {fields}")
    if found.fields != node.key.fields or found.groups != groups:
        return edge(
            True,
            f"{before.id} is partitioned by {', '.join(found.fields)} in {found.groups} groups, the key is {fields} in {groups}",
        )
    if found.partitions % parallelism:
        return edge(True, f"parallelism {parallelism} does not divide the {found.partitions} partitions of {before.id}")
    return edge(
        False,
        f"the log is partitioned by {fields} into {found.partitions} partitions, and parallelism {parallelism} divides them",
    )
