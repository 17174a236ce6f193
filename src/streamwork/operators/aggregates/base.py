"""`ColumnAggregate`: what a window knows about one of its aggregates, once it is bound to a type of events.

The columns of its state are also those of its partial aggregates: they have the name of the result, or begin with it, and are
columns of the state files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from streamwork.components import Event
from streamwork.components.field_types import FieldType
from streamwork.components.made import annotations_of
from streamwork.components.schema import field_type, fields_of
from streamwork.errors import WrongUse
from streamwork.operators.aggregates.columns import Groups, Parts, reduced


class ColumnAggregate(ABC):
    """An aggregate of a window, in columns. It keeps nothing between two calls."""

    name: str
    result_type: Any
    """The annotation of its result."""
    columns: Mapping[str, tuple[Any, Any]]
    """Its state: column -> (annotation, default)."""
    is_pure = True
    """False if a failed call may have changed something: then `on_error` other than "fail" is refused."""

    depends_on_order = False
    """True if events in another order give another result: then parts are only merged in the order of their events."""

    order: str | None = None
    """The column of numbers that grow from event to event, where parts are interleaved (`aggregates.ordered`)."""

    @abstractmethod
    def partial(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        """One row per group, of the events of a batch."""

    @abstractmethod
    def merge(self, left: Parts, right: Parts) -> Parts:
        """Row by row: the state of the events of `left`, followed by those of `right`. It is associative."""

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        """One row per group, of several rows that are in order."""
        return reduced(parts, groups, self.merge)

    @abstractmethod
    def result(self, parts: Parts) -> pa.Array:
        """The result of each row, in the Arrow type of `result_type`."""

    @cached_property
    def fields(self) -> dict[str, FieldType]:
        """The field types of its columns."""
        return {name: field_type(kind, name) for name, (kind, _) in self.columns.items()}

    @cached_property
    def result_field(self) -> FieldType:
        return field_type(self.result_type, self.name)


class Unbound(ABC):
    """An aggregate as a user writes it: ``sum_of("price")``."""

    @abstractmethod
    def bind(self, event: type[Event], name: str, interleaved: bool) -> ColumnAggregate:
        """For events of this type, with its result in a field of this name. `interleaved`: parts that are merged may have events
        of the same period, as those of sessions have, so that an order of events must be kept.
        """


def operand(event: type[Event], field: str, what: str) -> tuple[Any, FieldType]:
    """(annotation, field type) of the field that an aggregate reads; refuses one that the events do not have."""
    known = fields_of(event)
    if field not in known:
        raise wrong_field(f"{what}: {event.__name__} has no field {field!r}", f"use one of: {', '.join(known)}")
    return annotations_of(event)[field], known[field]


def wrong_field(cause: str, action: str) -> WrongUse:
    return WrongUse("SW-WINDOW-FIELD", cause, action)


def unfit(event: type[Event], field: str, what: str, takes: str) -> WrongUse:
    """The error for a field whose type an aggregate cannot take."""
    found = fields_of(event)[field].name
    return wrong_field(f"{what}: {event.__name__}.{field} is a {found}", f"use a field of type {takes}")


def optional(annotation: Any) -> Any:
    """The annotation with None allowed."""
    return annotation | None
