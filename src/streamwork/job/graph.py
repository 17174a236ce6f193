"""The frozen graph of a job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from streamwork.components import Event, OffsetSource, Sink, Source, StatefulSource, TableOperator, TimerClock
from streamwork.components.operator import names_in_methods
from streamwork.errors import WrongUse
from streamwork.job.backpressure import Backpressure, check_backpressure
from streamwork.job.names import check_name
from streamwork.job.node import UNLIMITED, Input, Node, NodeKind, Port
from streamwork.job.params import Values
from streamwork.job.semantics import EXACTLY_ONCE, Isolation, Promise, check_operator, check_sink, check_source


@dataclass(frozen=True)
class Graph:
    """A whole job. Each node comes after its inputs."""

    job: str
    nodes: tuple[Node, ...]
    promise: Promise = EXACTLY_ONCE
    params: Values = ()
    backpressure: Backpressure = Backpressure.SOURCES  # of components that have no policy of their own

    def __post_init__(self) -> None:
        check_name(self.job, "job name")
        check_backpressure(self.promise, f"job {self.job}", self.backpressure)
        for node in self.nodes:
            check_backpressure(self.promise, node.id, node.backpressure)
            if node.kind is NodeKind.SOURCE:
                check_source(self.promise, node.id, node.component)
            elif node.kind is NodeKind.SINK:
                check_sink(self.promise, node.id, node.component, node.isolation)
                _check_event_of_sink(node)
            else:
                check_operator(self.promise, node.id, node.component, node.isolated)
        ids = [node.id for node in self.nodes]
        for node_id in ids:
            if ids.count(node_id) > 1:
                raise duplicate_id(self.job, node_id)
        former = [was for node in self.nodes for was in node.renamed_from]
        for was in former:
            if was in ids or former.count(was) > 1:
                raise WrongUse(
                    "SW-JOB-RENAMED",
                    f"renamed_from={was!r} of job {self.job!r} names a component that it still has, or is given twice",
                    "give each component the id that it alone had",
                )
        if not self.sources:
            raise WrongUse(
                "SW-JOB-NO-SOURCE", f"job {self.job!r} has no source", "begin it with job.source(..., id=...)"
            )
        for node in self.nodes:
            for port in node.ports:
                for one in port.inputs:
                    if one.node not in ids:
                        raise WrongUse(
                            "SW-JOB-EDGE",
                            f"{node.id} reads from {one.node!r}, which is not in the job",
                            "add it, or read from another",
                        )
                    check_types(node.id, port.takes, self[one.node].emits(one.channel), str(one))
                _check_order(node, port, [self[one.node] for one in port.inputs])
        object.__setattr__(self, "nodes", _in_order(self.job, self.nodes))
        for node in self.nodes:
            if node.ttl is not None and node.ttl_clock is TimerClock.EVENT and not self.has_event_time(node.id):
                raise WrongUse(
                    "SW-JOB-TIME",
                    f"{node.id} forgets keys by event time (ttl=), but no source before it has event time",
                    'add time=... to the source, or use ttl_clock="processing"',
                )

    def has_event_time(self, node_id: str) -> bool:
        """True if a source before this component has event time."""
        timed = [source for source in self.sources if source.time is not None]
        return any(node.id == node_id for source in timed for node in self.behind(source.id))

    def __getitem__(self, node_id: str) -> Node:
        return self._by_id[node_id]

    def of_kind(self, kind: NodeKind) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind is kind)

    @property
    def sources(self) -> tuple[Node, ...]:
        return self.of_kind(NodeKind.SOURCE)

    @property
    def planned(self) -> tuple[Node, ...]:
        """The sources with offsets, whose slices are planned."""
        return tuple(node for node in self.sources if isinstance(node.component, OffsetSource))

    @property
    def polled(self) -> tuple[Node, ...]:
        """The user-written sources without offsets, which are polled."""
        return tuple(node for node in self.sources if isinstance(node.component, Source | StatefulSource))

    @property
    def sinks(self) -> tuple[Node, ...]:
        return self.of_kind(NodeKind.SINK)

    def travels(self, node: Node) -> bool:
        """True if the component is sent to the instances. Most sinks are used by the driver only."""
        stays = node.kind is NodeKind.SINK and self.is_staged(node) and node.isolation is Isolation.READ_COMMITTED
        return not stays

    @property
    def previews(self) -> bool:
        """True if a sink shows rows before their checkpoint is committed."""
        return any(node.isolation is Isolation.READ_UNCOMMITTED for node in self.nodes)

    def is_staged(self, node: Node) -> bool:
        """True if rows for this sink are staged and committed with their checkpoint; else they are written at once."""
        return self.promise.exactly_once or not isinstance(node.component, Sink)

    @property
    def stateful(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.keeps is not None)

    def tables_of(self, node: Node) -> dict[str, Input]:
        """The ports of a table operator that read the state of a table, and not its events; each with that table."""
        if not isinstance(node.component, TableOperator):
            return {}
        single = {port.name: port.inputs[0] for port in node.ports if len(port.inputs) == 1}
        return {name: one for name, one in single.items() if getattr(self[one.node].component, "shares_state", False)}

    def behind(self, node_id: str) -> tuple[Node, ...]:
        """All components that get what is made of a component's events."""
        found = {node_id}
        for node in self.nodes:
            if any(one.node in found for one in node.inputs):
                found.add(node.id)
        return tuple(node for node in self.nodes if node.id in found and node.id != node_id)

    def keeps_behind(self, node_id: str) -> bool:
        """True if a component behind this one keeps state that may depend on the order of its events."""
        behind = (node for node in self.behind(node_id) if not isinstance(node.component, TableOperator))
        return any(node.keeps is not None for node in behind)

    @property
    def idles(self) -> bool:
        """True if a source has partitions that become idle (`idle_after`)."""
        return any(node.idle_after is not None for node in self.sources)

    @property
    def uses_timers(self) -> bool:
        """True if some component uses timers, or follows processing time."""
        return self.idles or any(
            node.follows_time or TimerClock.PROCESSING in getattr(node.component, "clocks", ()) for node in self.nodes
        )

    @property
    def reads_clock(self) -> bool:
        """True if results may depend on processing time: on timers, on ``collector.now``, or on how far ahead events may be."""
        return (
            self.uses_timers
            or any(node.max_ahead not in (None, UNLIMITED) for node in self.nodes)
            or any(names_in_methods(type(node.component), "now") for node in self.of_kind(NodeKind.OPERATOR))
        )

    @property
    def deterministic(self) -> bool:
        return all(getattr(node.component, "deterministic", True) for node in self.nodes)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of ids, edges, schemas and keys. It does not depend on code."""
        content = json.dumps([node.signature() for node in self.nodes], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def _by_id(self) -> dict[str, Node]:
        return {node.id: node for node in self.nodes}


def check_types(node_id: str, takes: type[Event] | None, given: type[Event] | None, from_id: str) -> None:
    if takes is not None and given is not None and not issubclass(given, takes):
        raise WrongUse(
            "SW-JOB-TYPE",
            f"{node_id} takes {takes.__name__}, but {from_id} gives {given.__name__}",
            f"put a step between them that makes {takes.__name__} of {given.__name__}, or change the declared type",
        )


def _check_order(node: Node, port: Port, before: Sequence[Node]) -> None:
    """Refuse a port that spreads the events of one instance over several without a key or a grouping."""
    if port.key is not None or port.grouping is not None:
        return
    widest = max(before, key=lambda one: one.parallelism)
    if node.parallelism > widest.parallelism:
        raise WrongUse(
            "SW-JOB-ORDER",
            f"{node.id} has parallelism={node.parallelism}, but {widest.id} has {widest.parallelism}: without a key or a "
            "grouping there is no way to spread events over more instances that keeps them in order",
            "leave parallelism= out; or add grouping=fields(...) to keep the order of events with equal fields, or "
            "grouping=shuffle() if their order does not matter",
        )


def _check_event_of_sink(node: Node) -> None:
    """Refuse a type of events that the sink cannot store; the error names the sink."""
    if isinstance(node.component, Sink) and node.takes is not None:
        try:
            node.component.check(node.takes)
        except WrongUse as wrong:
            raise WrongUse(wrong.code, f"sink {node.id!r}: {wrong.cause}", wrong.action) from None


def duplicate_id(job: str, node_id: str) -> WrongUse:
    return WrongUse(
        "SW-JOB-DUPLICATE-ID",
        f"two components of job {job!r} have the id {node_id!r}",
        "give one of them another id; state belongs to the id, so keep the id of the one whose state matters",
    )


def _in_order(job: str, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Each node after its inputs, otherwise in the order given."""
    done: dict[str, Node] = {}
    waiting = list(nodes)
    while waiting:
        ready = next((node for node in waiting if all(one.node in done for one in node.inputs)), None)
        if ready is None:
            circle = ", ".join(node.id for node in waiting)
            raise WrongUse(
                "SW-JOB-CYCLE",
                f"job {job!r} goes round in a circle: {circle}",
                "let events flow one way, from sources to sinks",
            )
        waiting.remove(ready)
        done[ready.id] = ready
    return tuple(done.values())
