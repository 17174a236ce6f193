"""`PartialPlan`: the aggregates of a lambda, checked, and the types that it keeps and answers with.

    column                 of the state   of answers
    the fields of the key  key            if `to` has them
    checkpoint             sub-key        no; the checkpoint of the first event, or the first behind a seam
    until                  record         no; the checkpoint of the last event
    those of aggregates    record         one for each aggregate

The names of columns are stable: they are columns of the state files.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from streamwork.components import Event, Record
from streamwork.components.made import make_record
from streamwork.components.schema import fields_of
from streamwork.operators.aggregates import ColumnAggregate, Unbound
from streamwork.operators.aggregates.base import wrong_field
from streamwork.operators.aggregates.plan import AggregatePlan, check_filled

CHECKPOINT, UNTIL = "checkpoint", "until"


@dataclass(frozen=True)
class PartialPlan(AggregatePlan):
    """It refuses what does not fit together."""

    id: str
    event: type[Event]
    key: tuple[str, ...]
    to: type[Event]
    given: tuple[tuple[str, Unbound], ...]

    def __post_init__(self) -> None:
        if not self.key or not self.given:
            raise wrong_field(f"{self.id}: a lambda needs a key and an aggregate", 'add key="card", count=count()')
        self._check_names()
        fields = fields_of(self.event)
        known = {name: fields[name] for name in self.key}
        made = {one.name: one.result_field for one in self.aggregates}
        check_filled(self.id, self.to, self.event, {**known, **made}, made)

    @cached_property
    def aggregates(self) -> tuple[ColumnAggregate, ...]:
        return tuple(given.bind(self.event, name, False) for name, given in self.given)

    @property
    def is_pure(self) -> bool:
        """False if a call that fails may have changed something."""
        return all(one.is_pure for one in self.aggregates)

    @cached_property
    def record(self) -> type[Record]:
        """The state of one key and checkpoint."""
        return make_record(f"{self.to.__name__}Partial", {UNTIL: (int, 0), **self.columns})

    @cached_property
    def sub_key(self) -> type[Record]:
        return make_record("PartialKey", {CHECKPOINT: (int, 0)})

    def _check_names(self) -> None:
        fields = fields_of(self.event)
        for name in self.key:
            if name not in fields:
                raise wrong_field(
                    f"{self.id}: {self.event.__name__} has no field {name!r}", f"use one of: {', '.join(fields)}"
                )
        seen = {CHECKPOINT, UNTIL}
        for name in self.key:
            if name in seen:
                raise wrong_field(
                    f"{self.id}: the key field {name!r} has the name of a column of the state",
                    "rename it before, with map",
                )
        seen.update(self.key)
        for name, given in self.given:
            if not isinstance(given, Unbound):
                raise wrong_field(
                    f"{self.id}: {name}={given!r} is not an aggregate",
                    'use count(), sum_of("price") or another aggregate',
                )
        for name in (name for aggregate in self.aggregates for name in aggregate.columns):
            if name in seen:
                raise wrong_field(
                    f"{self.id}: two columns of the state would be named {name!r}",
                    "rename an aggregate: the names of its columns begin with its name",
                )
            seen.add(name)
