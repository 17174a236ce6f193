"""`Layout`: which components run together as one chain, and where events are exchanged.

A chain is the steps between two exchanges; each of its instances runs all of its steps. An edge needs an exchange if a grouping is
given, if the parallelism changes, or if the component behind it is keyed and its input is not partitioned by that key
(`job.partitioning`).

Where chains run one after another and not at the same time (`hosts.spark_epochs`), they run in stages. A chain runs in the last
stage before the first chain that reads from it, so that little output has to be kept over a stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from streamwork.components.collector import MAIN
from streamwork.components.grouping import Shuffle
from streamwork.components.operator import reads_watermark
from streamwork.job.backpressure import Backpressure
from streamwork.job.edges import Edge, edges_of
from streamwork.job.graph import Graph
from streamwork.job.node import Input, NodeKind
from streamwork.job.push_down import Native, native_part
from streamwork.wording import plural


class Way(NamedTuple):
    """A stream that goes through an exchange, and the port that it goes to."""

    stream: Input
    to: str
    port: str = MAIN


@dataclass(frozen=True)
class ChainSpec:
    """Components that run together."""

    nodes: tuple[str, ...]
    parallelism: int
    is_source: bool


@dataclass(frozen=True)
class Layout:
    """The chains of a graph and the edges between its components."""

    graph: Graph
    groups: int
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, graph: Graph, groups: int, isolates: bool = False, bounds: bool = False) -> Layout:
        """With `isolates`, an isolated component is a chain of its own. With `bounds`, the channels between chains are bounded."""
        return cls(graph, groups, edges_of(graph, groups, isolates, bounds))

    @cached_property
    def policies(self) -> tuple[Backpressure, ...]:
        """For each chain, what happens when it lags: the policy of its first component that has one, else that of the job."""
        return tuple(
            next(
                (policy for node_id in chain.nodes if (policy := self.graph[node_id].backpressure) is not None),
                self.graph.backpressure,
            )
            for chain in self.chains
        )

    @cached_property
    def buffers(self) -> tuple[int | None, ...]:
        """For each chain, how many events may wait for it in a channel: `buffer` of its first component that has one."""
        return tuple(
            next((most for node_id in chain.nodes if (most := self.graph[node_id].buffer) is not None), None)
            for chain in self.chains
        )

    @cached_property
    def behind(self) -> tuple[frozenset[int], ...]:
        """For each chain, the chains that its events come to, directly or through others."""
        found: dict[int, frozenset[int]] = {}
        for chain in reversed(range(len(self.chains))):
            after = self.downstream[chain]
            found[chain] = frozenset(after).union(*(found[one] for one in after))
        return tuple(found[chain] for chain in range(len(self.chains)))

    def is_isolated(self, chain: int) -> bool:
        """True if a chain is an isolated component, where the layout isolates."""
        nodes = self.chains[chain].nodes
        return len(nodes) == 1 and self.graph[nodes[0]].isolated

    @cached_property
    def chains(self) -> tuple[ChainSpec, ...]:
        """Each chain comes after those that it reads from."""
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
        return self._chain_of[node_id]

    @cached_property
    def _chain_of(self) -> dict[str, int]:
        return {node_id: number for number, chain in enumerate(self.chains) for node_id in chain.nodes}

    @cached_property
    def upstream(self) -> tuple[tuple[int, ...], ...]:
        """For each chain, the chains that it reads from."""
        pairs = {(self.chain_of(edge.from_id), self.chain_of(edge.to_id)) for edge in self.edges if edge.exchange}
        return tuple(tuple(sorted(a for a, b in pairs if b == chain)) for chain in range(len(self.chains)))

    @cached_property
    def downstream(self) -> tuple[tuple[int, ...], ...]:
        """For each chain, the chains that read from it."""
        count = range(len(self.chains))
        return tuple(tuple(after for after in count if chain in self.upstream[after]) for chain in count)

    @cached_property
    def exchanged(self) -> tuple[Way, ...]:
        """The streams that go through an exchange, each with the port that reads it."""
        return tuple(
            Way(one, node.id, port.name)
            for node in self.graph.nodes
            for port in node.ports
            for one in port.inputs
            if self.chain_of(one.node) != self.chain_of(node.id)
        )

    @cached_property
    def stages(self) -> tuple[tuple[int, ...], ...]:
        """The chains that can run at the same time, stage by stage."""
        count = range(len(self.chains))
        stage = [0] * len(self.chains)
        for chain in count:  # each comes after those that it reads from
            stage[chain] = max((stage[before] + 1 for before in self.upstream[chain]), default=0)
        for chain in reversed(count):
            stage[chain] = min((stage[after] - 1 for after in self.downstream[chain]), default=stage[chain])
        return tuple(tuple(c for c in count if stage[c] == number) for number in range(max(stage) + 1))

    @cached_property
    def native(self) -> dict[str, Native]:
        """Source -> the part of its chain that runs in Spark's JVM."""
        together = {(edge.from_id, edge.to_id) for edge in self.edges if not edge.exchange}
        parts = (native_part(self.graph, node, together) for node in self.graph.planned)
        return {part.source: part for part in parts if part is not None}

    def has_event_time(self, chain: int) -> bool:
        """True if a source of this chain, or before it, has event time (`time=`)."""
        mine = any(self.graph[node_id].time is not None for node_id in self.chains[chain].nodes)
        return mine or any(self.has_event_time(before) for before in self.upstream[chain])

    def interleaves(self, chain: int) -> bool:
        """True if results depend on what comes between two events of this chain: a watermark that an operator reads or a timer
        waits for, or an event of a branch that meets this one again. Then its events carry that order (`engine.routes`).
        """
        reads = any(reads_watermark(self.graph[node_id].component) for node_id in self.chains[chain].nodes)
        if self.has_event_time(chain) and (reads or self._follows_time_behind(chain)):
            return True
        for after in self.downstream[chain]:
            ways = [w for w in self.exchanged if self.chain_of(w.to) == after and self.chain_of(w.stream.node) == chain]
            ports = (port for node_id in self.chains[after].nodes for port in self.graph[node_id].ports)
            if len(ways) > 1 and any(len(port.inputs) > 1 for port in ports):
                return True
        return False

    def rotates(self, chain: int) -> bool:
        """True if events of this chain, or events made from them, go through `shuffle()`: then they carry their origins."""
        mine = [self.graph[way.to] for way in self.exchanged if self.chain_of(way.stream.node) == chain]
        shuffles = [node for node in mine if any(isinstance(port.grouping, Shuffle) for port in node.ports)]
        return any(node.parallelism > 1 for node in shuffles) or any(
            self.rotates(after) for after in self.downstream[chain]
        )

    def _follows_time_behind(self, chain: int) -> bool:
        """True if an operator behind this chain has timers or reads the watermark."""
        behind = [self.graph[node_id] for after in self.downstream[chain] for node_id in self.chains[after].nodes]
        return any(node.follows_time or reads_watermark(node.component) for node in behind) or any(
            map(self._follows_time_behind, self.downstream[chain])
        )

    def explain(self) -> str:
        """The layout as text: for each chain, what runs where, and why there is an exchange."""
        stage_of = {chain: number for number, stage in enumerate(self.stages, 1) for chain in stage}
        lines = []
        for number, chain in enumerate(self.chains):
            instances = plural(chain.parallelism, "instance")
            lines.append(f"chain {number + 1} ({instances}): {' -> '.join(chain.nodes)}")
            tasks = "1 task" if chain.parallelism == 1 else f"{chain.parallelism} tasks"
            place = f"stage {stage_of[number]} of {len(self.stages)}"
            where = f", behind the exchange from {self._names(self.upstream[number])}" if self.upstream[number] else ""
            lines.append(f"  runs as {tasks} in {place} of each checkpoint's Spark job{where}")
            lines += self._places(chain)
            for edge in self.edges:
                if edge.to_id in chain.nodes and (edge.exchange or self.graph[edge.to_id].key is not None):
                    how = "exchange" if edge.exchange else "no exchange"
                    lines.append(f"  {how} between {edge.from_id} and {edge.to_id}: {edge.why}")
        return "\n".join(lines)

    def _places(self, chain: ChainSpec) -> list[str]:
        """The steps of a chain in the JVM, in Python workers, and on the driver."""
        parts = [self.native[node_id] for node_id in chain.nodes if node_id in self.native]
        inside = {node_id for part in parts for node_id in (part.source, *part.filters)}
        lines = [f"  in Spark's JVM: {part.text(self.graph)}" for part in parts]
        if rest := [node_id for node_id in chain.nodes if node_id not in inside]:
            lines.append(f"  in Python workers: {', '.join(rest)}")
        if sinks := [node.id for node in self.graph.sinks if node.id in chain.nodes]:
            lines.append(f"  on the driver: the commit of {', '.join(sinks)}")
        return lines + [f"  {part.rest}" for part in parts if part.rest]

    def _names(self, chains: tuple[int, ...]) -> str:
        return ("chain " if len(chains) == 1 else "chains ") + ", ".join(str(chain + 1) for chain in chains)
