"""`graph.json`: the graph and the schemas of a job as they were at a savepoint, readable without the job's code."""

from __future__ import annotations

import msgspec

from streamwork.components.schema import arrow_schema
from streamwork.job import Graph, Node
from streamwork.job.params import Value


class FieldRecord(msgspec.Struct, frozen=True):
    name: str
    type: str  # as Arrow writes it
    optional: bool


class TypeRecord(msgspec.Struct, frozen=True):
    """An event or a record: the name of its class, and its fields."""

    name: str
    fields: tuple[FieldRecord, ...]

    @classmethod
    def of(cls, kind: type[msgspec.Struct] | None) -> TypeRecord | None:
        if kind is None:
            return None
        fields = tuple(FieldRecord(field.name, str(field.type), field.nullable) for field in arrow_schema(kind))
        return cls(kind.__name__, fields)


class PortRecord(msgspec.Struct, frozen=True):
    name: str
    inputs: tuple[str, ...]  # COMPONENT or COMPONENT:CHANNEL
    takes: TypeRecord | None
    key: tuple[str, ...] | None
    grouping: str | None


class NodeRecord(msgspec.Struct, frozen=True):
    id: str
    kind: str  # source, operator, sink
    component: str  # the name of its class
    parallelism: int
    ports: tuple[PortRecord, ...]
    keeps: TypeRecord | None
    sub_key: TypeRecord | None
    gives: TypeRecord | None
    channels: dict[str, TypeRecord]
    deterministic: bool

    @classmethod
    def of(cls, node: Node) -> NodeRecord:
        channels = {name: TypeRecord.of(kind) for name, kind in node.channels.items()}
        return cls(
            id=node.id,
            kind=node.kind.value,
            component=node.title,
            parallelism=node.parallelism,
            ports=tuple(
                PortRecord(
                    port.name,
                    tuple(map(str, port.inputs)),
                    TypeRecord.of(port.takes),
                    None if port.key is None else tuple(port.key.fields),
                    None if port.grouping is None else str(port.grouping),
                )
                for port in node.ports
            ),
            keeps=TypeRecord.of(node.keeps),
            sub_key=TypeRecord.of(node.sub_key),
            gives=TypeRecord.of(node.gives),
            channels={name: kind for name, kind in channels.items() if kind is not None},
            deterministic=getattr(node.component, "deterministic", True),
        )


class GraphRecord(msgspec.Struct, frozen=True):
    job: str
    fingerprint: str
    semantics: str
    tracking: str
    params: dict[str, Value]
    nodes: tuple[NodeRecord, ...]  # each after its inputs
    seal: str = ""

    @classmethod
    def of(cls, graph: Graph) -> GraphRecord:
        promise = graph.promise
        return cls(
            job=graph.job,
            fingerprint=graph.fingerprint,
            semantics=promise.semantics.value,
            tracking="" if promise.tracking is None else promise.tracking.value,
            params=dict(graph.params),
            nodes=tuple(NodeRecord.of(node) for node in graph.nodes),
        )
