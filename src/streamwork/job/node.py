"""`Node`: one component in its place in the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import pyarrow as pa

from streamwork.components import Event, Grouping, Key, Record, TimerClock
from streamwork.components.collector import MAIN
from streamwork.components.operator import rescale_of
from streamwork.components.schema import arrow_schema, fields_of
from streamwork.errors import WrongUse
from streamwork.job.backpressure import Backpressure, checked_buffer
from streamwork.job.names import check_name
from streamwork.job.retry import Retry
from streamwork.job.semantics import Isolation

UNLIMITED = 1 << 60
"""Microseconds of `max_ahead` that no event exceeds."""


class NodeKind(Enum):
    SOURCE = "source"
    OPERATOR = "operator"
    SINK = "sink"


@dataclass(frozen=True)
class Input:
    """A stream that a component reads: one channel of another component."""

    node: str
    channel: str = MAIN

    def __str__(self) -> str:
        return self.node if self.channel == MAIN else f"{self.node}:{self.channel}"


@dataclass(frozen=True)
class Port:
    """A named input of a component: what it reads there, the type that it takes, and how events are routed to its instances.

    Several `inputs` are a union. A join has several ports, each with a type and a key of its own.
    """

    inputs: tuple[Input, ...]
    takes: type[Event] | None = None
    key: Key | None = None
    grouping: Grouping | None = None  # None: by key if there is one, else events stay in their instance
    name: str = MAIN

    def __post_init__(self) -> None:
        check_name(self.name, "port")
        if self.key is not None and self.grouping is not None:
            raise WrongUse("SW-JOB-KEY", f"port {self.name!r} has a key and a grouping", "leave the grouping out")

    @property
    def key_types(self) -> tuple[pa.DataType, ...]:
        """The Arrow types of the key's fields."""
        return () if self.key is None or self.takes is None else arrow_types(self.takes, self.key.fields)


@dataclass(frozen=True)
class Node:
    """One component in its place. Validates itself; the graph checks what concerns several nodes."""

    id: str
    kind: NodeKind
    component: Any
    ports: tuple[Port, ...] = ()  # none: a source
    keeps: type[Record] | None = None
    gives: type[Event] | None = None
    parallelism: int = 1
    on_error: str = "fail"
    retry: Retry | None = None  # of an operator: how an event is tried again before `on_error` applies
    isolation: Isolation = Isolation.READ_COMMITTED  # of a sink
    time: str | None = None  # of a source: the field that says when an event happened
    # Of a source: microseconds without events after which a partition is idle; None: never.
    idle_after: int | None = None
    # Of a source: microseconds that an event may be ahead of processing time; None: the default.
    max_ahead: int | None = None
    # Of a keyed operator: microseconds after which a key that is not touched is forgotten; None: never.
    ttl: int | None = None
    ttl_clock: TimerClock = TimerClock.EVENT
    isolated: bool = False  # of an operator: in live mode it runs in a process of its own
    deadline: float | None = None  # of an isolated operator: seconds that one event may take
    renamed_from: tuple[str, ...] = ()  # the ids that it had, newest first
    backpressure: Backpressure | None = None  # when it lags; None: that of the job
    buffer: int | None = None  # events that may wait in a channel to one of its instances; None: the default

    def __post_init__(self) -> None:
        check_name(self.id, "component id")
        for was in self.renamed_from:
            check_name(was, "former component id")
        if self.renamed_from and self.isolation is Isolation.READ_UNCOMMITTED:
            raise WrongUse(
                "SW-JOB-RENAMED",
                f"sink {self.id} is renamed, but shows rows before they are committed: these are known by the old id",
                "keep the old id, or leave isolation= out",
            )
        self._check_ports()
        for name in self.channels:
            check_name(name, "channel")
        checked_buffer(self.buffer)
        for kind in (*(port.takes for port in self.ports), self.keeps, self.gives, *self.channels.values()):
            if kind is not None:
                arrow_schema(kind)  # refuses a field that has no place in Arrow
        most = getattr(self.component, "max_events", 1)
        if not isinstance(most, int) or most < 1:
            raise WrongUse("SW-JOB-SETTING", f"{self.id}: max_events={most!r}", "use a whole number of at least 1")
        if getattr(self.component, "start", "stored") not in ("stored", "latest", "earliest"):
            raise WrongUse(
                "SW-JOB-SETTING", f"{self.id}: start={self.component.start!r}", "use stored, latest or earliest"
            )
        if self.deadline is not None and self.deadline <= 0:
            raise WrongUse("SW-JOB-SETTING", f"{self.id}: deadline={self.deadline!r}", "use a duration above zero")
        if self.time is None and (self.idle_after is not None or self.max_ahead is not None):
            raise WrongUse(
                "SW-JOB-TIME",
                f"{self.id} has idle_after= or max_ahead=, but no event time",
                "add time=..., or leave it out",
            )
        if self.time is not None:
            known = fields_of(self.gives) if self.gives else {}
            if self.time not in known or not pa.types.is_timestamp(known[self.time].arrow) or known[self.time].nullable:
                raise WrongUse(
                    "SW-JOB-TIME",
                    f"{self.id}: {self.time!r} is not a datetime field of {self.gives.__name__ if self.gives else 'its events'}",
                    "name a field of type datetime that is always there",
                )
        if self.keeps is not None:
            self._check_state_names(self.keeps)

    def _check_state_names(self, keeps: type[Record]) -> None:
        key = set(self.key.fields) if self.key is not None else set()
        for kind in (self.sub_key, keeps):
            for name in key & set(kind.__struct_fields__ if kind is not None else ()):
                assert kind is not None
                raise WrongUse(
                    "SW-KEY-CLASH",
                    f"{self.id}: {kind.__name__}.{name} has the name of the key field {name!r}",
                    f"leave it out: the key is stored beside the record anyway, in a column {name!r}",
                )
            key |= set(kind.__struct_fields__ if kind is not None else ())

    def _check_ports(self) -> None:
        names = [port.name for port in self.ports]
        if len(set(names)) < len(names):
            raise WrongUse(
                "SW-JOB-EDGE", f"{self.id} has two ports of one name: {', '.join(names)}", "give each port its own name"
            )
        for port in self.ports[1:]:
            if port.key_types != self.ports[0].key_types:
                raise WrongUse(
                    "SW-KEY-TYPE",
                    f"{self.id}: the key of port {port.name!r} is {_key_text(port)}, that of port {names[0]!r} is "
                    f"{_key_text(self.ports[0])}",
                    "key all ports by the same number of fields, of the same types",
                )

    @property
    def follows_time(self) -> bool:
        """True if events must come in order with the advances of time: it has timers, or forgets keys."""
        return getattr(self.component, "uses_timers", False) or self.ttl is not None

    @property
    def inputs(self) -> tuple[Input, ...]:
        """All that it reads, at any port."""
        return tuple(one for port in self.ports for one in port.inputs)

    @property
    def takes(self) -> type[Event] | None:
        """The type of events at its first port."""
        return self.ports[0].takes if self.ports else None

    @property
    def key(self) -> Key | None:
        """The key that it keeps state by: that of its first port, whose values those of the other ports are compared with."""
        return self.ports[0].key if self.ports else None

    @property
    def rescale(self) -> Callable[[list[Any], int], Sequence[Any]] | None:
        """How its author divides the records of its instances among another number of them; None if that is not defined."""
        return rescale_of(self.component)

    @property
    def sub_key(self) -> type[Record] | None:
        """The fields that follow the key in the key of its state."""
        return getattr(self.component, "sub_key", None)

    @property
    def is_routed(self) -> bool:
        """True if a key or a grouping decides which instance gets an event."""
        return any(port.key is not None or port.grouping is not None for port in self.ports)

    def port(self, name: str) -> Port:
        """The port of this name."""
        return next(port for port in self.ports if port.name == name)

    def address(self, port: str) -> str:
        """What names a port: the component for the first one."""
        return self.id if port == self.ports[0].name else f"{self.id}:{port}"

    def at(self, address: str) -> Port | None:
        """The port of an address of this component; None if it has no such port, or is a source."""
        name = address.partition(":")[2]
        return next((port for place, port in enumerate(self.ports) if port.name == name or not (name or place)), None)

    @property
    def channels(self) -> dict[str, type[Event]]:
        """Channel -> type, of what it emits besides the main channel."""
        return getattr(self.component, "channels", {})

    def emits(self, channel: str) -> type[Event] | None:
        return self.gives if channel == MAIN else self.channels.get(channel)

    @property
    def title(self) -> str:
        return type(self.component).__name__

    def signature(self) -> dict[str, Any]:
        """What the fingerprint is made of: place, types and keys, but not code."""
        first, *others = self.ports or (Port(()),)
        return {
            "id": self.id,
            "kind": self.kind.value,
            "keeps": _schema(self.keeps),
            **({"sub_key": _schema(self.sub_key)} if self.sub_key is not None else {}),
            "gives": _schema(self.gives),
            "channels": {name: _schema(kind) for name, kind in self.channels.items()},
            **_signature(first),
            **({"ports": {port.name: _signature(port) for port in others}} if others else {}),
        }


def ids(given: str | Sequence[str]) -> tuple[str, ...]:
    """One id or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def arrow_types(kind: type[Event], names: Iterable[str]) -> tuple[pa.DataType, ...]:
    """The Arrow types of some fields of an event."""
    known = fields_of(kind)
    return tuple(known[name].arrow for name in names)


def _key_text(port: Port) -> str:
    fields = port.key.fields if port.key is not None else ()
    return ", ".join(f"{name} ({kind})" for name, kind in zip(fields, port.key_types, strict=True)) or "none"


def _signature(port: Port) -> dict[str, Any]:
    return {
        "inputs": [str(one) for one in port.inputs],
        "takes": _schema(port.takes),
        "key": port.key.fields if port.key else None,
        "grouping": str(port.grouping) if port.grouping else None,
    }


def _schema(kind: type[msgspec.Struct] | None) -> list[list[str]] | None:
    return (
        None if kind is None else [[field.name, str(field.type), str(field.nullable)] for field in arrow_schema(kind)]
    )
