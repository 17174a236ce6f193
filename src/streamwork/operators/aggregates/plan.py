"""`AggregatePlan`: several aggregates of one type of events, as columns of partials, of the state and of results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.field_types import FieldType
from streamwork.components.schema import arrow_schema, fields_of
from streamwork.components.table_operator import StateTable
from streamwork.errors import JobFailed
from streamwork.operators.aggregates.base import ColumnAggregate, wrong_field
from streamwork.operators.aggregates.columns import Array, Groups, Parts, column_of, is_plain, stacked, take


class AggregatePlan(ABC):
    """What computes with the columns of all aggregates of a component."""

    id: str
    to: type[Event]
    """The type of its results."""

    @property
    @abstractmethod
    def aggregates(self) -> tuple[ColumnAggregate, ...]: ...

    @cached_property
    def columns(self) -> dict[str, tuple[Any, Any]]:
        """The columns of all aggregates."""
        return {name: one for aggregate in self.aggregates for name, one in aggregate.columns.items()}

    def partials(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        """The partial aggregates of the events of a batch, one row per group."""
        return {name: column for one in self.aggregates for name, column in one.partial(batch, groups).items()}

    def merged(self, left: Parts, right: Parts) -> Parts:
        return {name: column for one in self.aggregates for name, column in one.merge(left, right).items()}

    def combined(self, parts: Parts, groups: Groups) -> Parts:
        """One row per group."""
        found: dict[str, Any] = {}
        for one in self.aggregates:
            found.update(one.combine({name: parts[name] for name in one.columns}, groups))
        return found

    def replaced(self, parts: Parts, rows: Array, by: Parts) -> Parts:
        """The same parts, with other values in some rows."""
        if not parts:
            return parts
        places = np.arange(len(next(iter(parts.values()))))
        places[rows] = len(places) + np.arange(len(rows))
        return take(stacked([parts, by]), places)

    def parts_of(self, batch: pa.RecordBatch) -> Parts:
        """The columns of aggregates in a batch of partials."""
        return {name: column_of(field, batch.column(name)) for name, field in self.fields.items()}

    def stored(self, state: StateTable, places: Array) -> Parts:
        """The columns of aggregates in the state."""
        return {
            name: state.numbers(name, places) if is_plain(field) else state.values(name, places)
            for name, field in self.fields.items()
        }

    def store(self, state: StateTable, places: Array, parts: Parts) -> None:
        for name in self.fields:
            state.put(name, places, parts[name])

    def results(self, known: Mapping[str, pa.Array], parts: Parts) -> pa.RecordBatch:
        """The results of partials, one row for each. `known` are all columns that are not aggregates, by name."""
        made = {one.name: one.result(parts) for one in self.aggregates}
        schema = arrow_schema(self.to)
        columns = [_fitted(self.id, field, made.get(field.name, known.get(field.name))) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The types of those columns."""
        return {name: field for one in self.aggregates for name, field in one.fields.items()}


def _fitted(step_id: str, field: pa.Field, column: pa.Array) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise JobFailed(
            "SW-WINDOW-OVERFLOW",
            f"{step_id}: a result does not fit into the field {field.name!r} ({field.type}): {error}",
            "declare the field with more digits",
            retryable=False,
            about_one_event=True,
        ) from None


def check_filled(
    step_id: str, to: type[Event], event: type[Event], known: Mapping[str, FieldType], made: Collection[str]
) -> None:
    """Every field of the result is filled, by name, with a value of its type; and every aggregate has a field. `known` are all
    values, `made` the names of aggregates.
    """
    fields = fields_of(to)
    for name in made:
        if name not in fields:
            raise wrong_field(
                f"{step_id}: {to.__name__} has no field for the aggregate {name!r}",
                f"add it to {to.__name__}, or rename the aggregate to one of: {', '.join(fields)}",
            )
    for name, field in fields.items():
        if name not in known:
            readable = name in fields_of(event)
            add = f'key="{name}", or an aggregate: {name}=...' if readable else f"an aggregate: {name}=..."
            raise wrong_field(
                f"{step_id}: nothing fills {to.__name__}.{name}", f"add {add}; known are: {', '.join(known)}"
            )
        found = known[name]
        if not _fits(found.arrow, field.arrow) or (found.nullable and not field.nullable):
            may_be_null = " or None" if found.nullable else ""
            raise wrong_field(
                f"{step_id}: {to.__name__}.{name} is a {field.name}, but its value is a {found.name}{may_be_null}",
                f"declare {name} as {found.name}{may_be_null}",
            )


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_decimal(found) and pa.types.is_decimal(wanted):
        return bool(found.scale == wanted.scale)
    return bool(found == wanted)
