"""`Node`: one component in its place in the graph."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import pyarrow as pa

from streamwork.components import Event, Grouping, Key, Record
from streamwork.components.collector import MAIN
from streamwork.components.schema import arrow_schema, fields_of
from streamwork.errors import WrongUse
from streamwork.job.names import check_name
from streamwork.job.retry import Retry
from streamwork.job.semantics import Isolation


class NodeKind(Enum):
    SOURCE = "source"
    OPERATOR = "operator"
    SINK = "sink"


@dataclass(frozen=True)
class Input:
    """What a component reads: one channel of another one."""

    node: str
    channel: str = MAIN

    def __str__(self) -> str:
        return self.node if self.channel == MAIN else f"{self.node}:{self.channel}"


@dataclass(frozen=True)
class Node:
    """One component in its place. Validates itself; what concerns several nodes is the graph's to check."""

    id: str
    kind: NodeKind
    component: Any
    inputs: tuple[Input, ...] = ()
    takes: type[Event] | None = None
    keeps: type[Record] | None = None
    gives: type[Event] | None = None
    key: Key | None = None
    grouping: Grouping | None = None  # None: by key if there is one, else wherever the events are
    parallelism: int = 1
    on_error: str = "fail"
    retry: Retry | None = None  # of an operator: how an event is tried again before `on_error` applies
    isolation: Isolation = Isolation.READ_COMMITTED  # of a sink
    time: str | None = None  # of a source: the field that says when an event happened

    def __post_init__(self) -> None:
        check_name(self.id, "component id")
        for name in self.channels:
            check_name(name, "channel")
        for kind in (self.takes, self.keeps, self.gives, *self.channels.values()):
            if kind is not None:
                arrow_schema(kind)  # refuses a field that has no place in Arrow
        most = getattr(self.component, "max_events", 1)
        if not isinstance(most, int) or most < 1:
            raise WrongUse("SW-JOB-SETTING", f"{self.id}: max_events={most!r}", "use a whole number of at least 1")
        if getattr(self.component, "start", "stored") not in ("stored", "latest", "earliest"):
            raise WrongUse(
                "SW-JOB-SETTING", f"{self.id}: start={self.component.start!r}", "use stored, latest or earliest"
            )
        if self.time is not None:
            known = fields_of(self.gives) if self.gives else {}
            if self.time not in known or not pa.types.is_timestamp(known[self.time].arrow) or known[self.time].nullable:
                raise WrongUse(
                    "SW-JOB-TIME",
                    f"{self.id}: {self.time!r} is not a datetime field of {self.gives.__name__ if self.gives else 'its events'}",
                    "name a field of type datetime that is always there",
                )
        if self.keeps is not None and self.key is not None:
            for name in set(self.key.fields) & set(self.keeps.__struct_fields__):
                raise WrongUse(
                    "SW-KEY-CLASH",
                    f"{self.id}: {self.keeps.__name__}.{name} has the name of the key field {name!r}",
                    f"leave it out: the key is stored beside the record anyway, in a column {name!r}",
                )

    @property
    def channels(self) -> dict[str, type[Event]]:
        """What it emits besides the main channel."""
        return getattr(self.component, "channels", {})

    def emits(self, channel: str) -> type[Event] | None:
        return self.gives if channel == MAIN else self.channels.get(channel)

    @property
    def title(self) -> str:
        return type(self.component).__name__

    def signature(self) -> dict[str, Any]:
        """What the fingerprint is made of: place, types and key, but not code."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "inputs": [str(one) for one in self.inputs],
            "takes": _schema(self.takes),
            "keeps": _schema(self.keeps),
            "gives": _schema(self.gives),
            "channels": {name: _schema(kind) for name, kind in self.channels.items()},
            "key": self.key.fields if self.key else None,
            "grouping": str(self.grouping) if self.grouping else None,
        }


def _schema(kind: type[msgspec.Struct] | None) -> list[list[str]] | None:
    return (
        None if kind is None else [[field.name, str(field.type), str(field.nullable)] for field in arrow_schema(kind)]
    )
