"""A chain: the steps between two exchanges, run by one instance. The only executor of operators there is.

open(states, stagings)   every instance is set up before the first event
process(source, slice)   events of one source partition, in offset order
checkpoint()             what the steps counted; the caller writes state and outputs
"""

from __future__ import annotations

from collections.abc import Mapping

from streamwork.components import Slice
from streamwork.engine.staging import Staging
from streamwork.engine.steps import Events, KeyedStep, OperatorStep, StageStep, Step
from streamwork.errors import JobFailed
from streamwork.job import Graph, Node, NodeKind
from streamwork.state import KeyedState


class Chain:
    """Lives in one process, from epoch to epoch; after an error it is thrown away and a fresh one is set up."""

    def __init__(self, graph: Graph, instance: int = 0) -> None:
        self.graph = graph
        self.instance = instance
        self._steps = {node.id: _step(node, instance) for node in graph.nodes if node.kind is not NodeKind.SOURCE}
        self._followers = {n.id: [s for s in self._steps.values() if n.id in s.node.inputs] for n in graph.nodes}
        self._sources = {node.id: {"processed": 0, "dropped": 0} for node in graph.sources}
        for node in graph.of_kind(NodeKind.OPERATOR):
            try:
                node.component.setup_instance(instance)
            except Exception as error:
                raise JobFailed(
                    "SW-OPERATOR-SETUP",
                    f"{node.id} (instance {instance}) could not be set up: {type(error).__name__}: {error}",
                    f"mend setup_instance of {node.title}, or what it connects to, and start again",
                ) from error

    def open(self, states: Mapping[str, KeyedState], stagings: Mapping[str, Staging]) -> None:
        """Begin an epoch with these states and these places for outputs."""
        for step in self._steps.values():
            step.reset()
            if isinstance(step, KeyedStep):
                step.state = states[step.node.id]
            elif isinstance(step, StageStep):
                step.staging = stagings[step.node.id]
        for counters in self._sources.values():
            counters.update(processed=0, dropped=0)

    def process(self, source: str, piece: Slice) -> None:
        self._sources[source]["processed"] += len(piece.events) + piece.dropped
        self._sources[source]["dropped"] += piece.dropped
        self._pass_on(source, piece.events)

    def checkpoint(self) -> dict[str, dict[str, int]]:
        """Counters of every component since `open`, the stateless ones too."""
        counted = {name: dict(counters) for name, counters in self._sources.items()}
        counted.update((name, step.counters()) for name, step in self._steps.items())
        return counted

    def close(self) -> None:
        for node in self.graph.of_kind(NodeKind.OPERATOR):
            node.component.close()

    def _pass_on(self, from_id: str, events: Events) -> None:
        if events:
            for step in self._followers[from_id]:
                self._pass_on(step.node.id, step.process(events))


def _step(node: Node, instance: int) -> Step:
    if node.kind is NodeKind.SINK:
        return StageStep(node, instance)
    return KeyedStep(node, instance) if node.keeps is not None else OperatorStep(node, instance)
