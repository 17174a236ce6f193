"""`JobGraph`: the components of a job and the streams between them, each with its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from streamwork.delivery.counts import TOGETHER
from streamwork.engine.vitals import EdgeVital, InstanceVital
from streamwork.epoch.savepoints.graph_record import GraphRecord, NodeRecord, PortRecord, TypeRecord
from streamwork.observe.facts import EventTime
from streamwork.observe.rates import Behind, SourceRate, behind, spread
from streamwork.observe.status import JobStatus

MAIN = "main"


class NodeState(msgspec.Struct, frozen=True):
    """The state of a component at the newest checkpoint."""

    keys: int | None  # None: not keyed
    bytes: int  # of its files


class NodeInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a component. What only a running task knows is None without it."""

    instance: int
    processed: int  # in committed epochs
    rate: float | None  # events per second
    share: float | None  # of the events of all instances, lately
    epoch: int | None = None
    busy: bool | None = None
    waiting: int | None = None
    last_event: str = ""
    stack: tuple[str, ...] = ()


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A component."""

    id: str
    kind: str
    component: str
    parallelism: int
    key: tuple[str, ...] | None
    takes: str | None
    gives: str | None
    keeps: str | None
    rate: float | None
    processed: int
    dead_letters: int
    dropped: int
    retrying: int
    state: NodeState | None
    lag: Behind | None
    watermark: float | None  # seconds since 1970
    skew: float | None  # the busiest instance, as a multiple of the mean
    instances: tuple[NodeInstance, ...]


class EdgeView(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from", "receiver": "to"}):
    """A stream from one component to another, with the bounded channels between their instances, where there are any."""

    sender: str
    channel: str  # of the sender; empty: its main one
    receiver: str
    port: str  # of the receiver; empty: its only one
    key: tuple[str, ...] | None
    grouping: str | None
    rate: float | None  # events per second; None where the receiver has several inputs
    waiting: int | None
    bytes: int | None
    full: bool | None
    full_seconds: float | None
    dropped: int | None
    channels: tuple[EdgeVital, ...]


class JobGraph(msgspec.Struct, frozen=True):
    nodes: tuple[NodeView, ...]  # each after its inputs
    edges: tuple[EdgeView, ...]

    def edges_to(self, node_id: str) -> list[EdgeView]:
        return [one for one in self.edges if one.receiver == node_id]


def job_graph(
    record: GraphRecord,
    status: JobStatus,
    sources: Mapping[str, SourceRate],
    rates: Mapping[str, Mapping[int, float]] | None,
) -> JobGraph:
    """`rates` by component and instance: None if they are not known."""
    marks = watermarks(record, status.event_times)
    nodes = tuple(_node(node, status, sources, rates, marks.get(node.id)) for node in record.nodes)
    edges = tuple(
        _edge(node, port, text, status, rates) for node in record.nodes for port in node.ports for text in port.inputs
    )
    return JobGraph(nodes, edges)


def watermarks(record: GraphRecord, times: Sequence[EventTime]) -> dict[str, float]:
    """Component -> its watermark at a checkpoint, in seconds since 1970: the least of what it reads from. Idle partitions do
    not count.
    """
    found: dict[str, float] = {}
    for one in times:
        if not one.idle:
            found[one.source] = min(found.get(one.source, one.watermark), one.watermark)
    for node in record.nodes:
        before = {text.partition(":")[0] for port in node.ports for text in port.inputs}
        if known := [found[one] for one in before if one in found]:
            found.setdefault(node.id, min(known))
    return found


def _node(
    node: NodeRecord,
    status: JobStatus,
    sources: Mapping[str, SourceRate],
    rates: Mapping[str, Mapping[int, float]] | None,
    watermark: float | None,
) -> NodeView:
    counts, mine = status.counts.get(node.id), (rates or {}).get(node.id, {})
    lag = {node.id: status.lag[node.id]} if node.id in status.lag else {}
    committed = {} if counts is None else counts.committed
    return NodeView(
        id=node.id,
        kind=node.kind,
        component=node.component,
        parallelism=node.parallelism,
        key=next((port.key for port in node.ports if port.key is not None), None),
        takes=next((port.takes.name for port in node.ports if port.takes is not None), None),
        gives=_name(node.gives),
        keeps=_name(node.keeps),
        rate=None if rates is None else sum(mine.values()),
        processed=committed.get("processed", 0),
        dead_letters=status.dead_letters.by_component.get(node.id, 0),
        dropped=committed.get("dropped", 0),
        retrying=sum(one.component == node.id for one in status.retrying),
        state=_state(node, status),
        lag=behind(lag, sources),
        watermark=watermark,
        skew=spread(mine),
        instances=_instances(node, status, mine, rates is not None),
    )


def _name(kind: TypeRecord | None) -> str | None:
    return None if kind is None else kind.name


def _state(node: NodeRecord, status: JobStatus) -> NodeState | None:
    known = status.states.get(node.id)
    return None if known is None else NodeState(known.keys, sum(known.bytes.values()))


def _instances(
    node: NodeRecord, status: JobStatus, rates: Mapping[int, float], known: bool
) -> tuple[NodeInstance, ...]:
    counts = status.counts.get(node.id)
    counted = {} if counts is None else {int(name): one.committed for name, one in counts.instances.items()}
    vitals = {one.instance: one for one in status.instances if node.id in one.components}
    numbers = sorted({*counted, *rates, *vitals} & set(range(node.parallelism)))  # others are of an earlier parallelism
    total = sum(rate for instance, rate in rates.items() if instance != TOGETHER)
    return tuple(
        _with_vitals(
            NodeInstance(
                instance=number,
                processed=counted.get(number, {}).get("processed", 0),
                rate=rates.get(number, 0.0) if known else None,
                share=rates.get(number, 0.0) / total if total > 0 else None,
            ),
            vitals.get(number),
        )
        for number in numbers
    )


def _with_vitals(one: NodeInstance, vital: InstanceVital | None) -> NodeInstance:
    if vital is None:
        return one
    return msgspec.structs.replace(
        one,
        epoch=vital.epoch,
        busy=vital.busy,
        waiting=vital.waiting,
        last_event=vital.last_event,
        stack=vital.stack,
    )


def _edge(
    node: NodeRecord, port: PortRecord, text: str, status: JobStatus, rates: Mapping[str, Mapping[int, float]] | None
) -> EdgeView:
    sender, _, channel = text.partition(":")
    channels = _between(sender, node.id, status)
    alone = sum(len(one.inputs) for one in node.ports) == 1
    return EdgeView(
        sender=sender,
        channel=channel,
        receiver=node.id,
        port="" if port.name == MAIN else port.name,
        key=port.key,
        grouping=port.grouping,
        rate=sum(rates.get(node.id, {}).values()) if rates is not None and alone else None,
        waiting=sum(one.events for one in channels) if channels else None,
        bytes=sum(one.bytes for one in channels) if channels else None,
        full=any(one.since is not None for one in channels) if channels else None,
        full_seconds=max(one.full_seconds for one in channels) if channels else None,
        dropped=sum(one.dropped for one in channels) if channels else None,
        channels=tuple(channels),
    )


def _between(sender: str, receiver: str, status: JobStatus) -> Sequence[EdgeVital]:
    """The channels from the chains with `sender` to the chain that begins with `receiver`. A chain has the name of its first
    component.
    """
    chains = {one.components[0] for one in status.instances if sender in one.components} | {sender}
    return [one for one in status.edges if _chain(one.sender) in chains and _chain(one.receiver) == receiver]


def _chain(name: str) -> str:
    return name.partition("[")[0]
