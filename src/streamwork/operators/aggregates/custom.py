"""`Aggregate`: the base class of a user's own aggregates."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from streamwork.components import Event
from streamwork.components.columns import to_structs
from streamwork.components.field_types import Misfit
from streamwork.components.generics import type_arguments
from streamwork.errors import JobFailed
from streamwork.operators.aggregates.base import ColumnAggregate, Unbound, optional, wrong_field
from streamwork.operators.aggregates.columns import Groups, Parts

E = TypeVar("E", bound=Event, contravariant=True)
S = TypeVar("S")
V = TypeVar("V", covariant=True)


class Aggregate(Unbound, Generic[E, S, V]):
    """An aggregate of events `E`, whose state is a `S` and whose result is a `V`::

        class Range(Aggregate[Trade, Bounds, float]):
            def create(self):
                return Bounds()
            def add(self, state, event):
                return Bounds(min(state.low, event.price), max(state.high, event.price))
            def merge(self, left, right):
                return Bounds(min(left.low, right.low), max(left.high, right.high))
            def result(self, state):
                return state.high - state.low

        trades.window(Fixed("1min"), key="symbol", id="ranges").aggregate(Ranges, range=Range())

    A state is any type that a field of a record can have; it is a column of the state files. `merge` is associative: `left` has the
    earlier events. In sessions it must also be commutative: two that become one may have events of the same period.

    To work on whole columns, define these as well; each is used instead of the method above it. A state is then a value of an
    Arrow array. They are only applied under ``on_error="fail"``, unless the class declares ``pure = True``: a failed call has
    changed nothing.

        add_batch(batch, codes, count)   the states of `count` groups; `codes` has the group of each event
        merge_batch(left, right)         row by row
        result_batch(states)
    """

    pure: ClassVar[bool] = False

    def create(self) -> S:
        raise NotImplementedError

    def add(self, state: S, event: E) -> S:
        """The state with one more event. It may change the given state and return it."""
        raise NotImplementedError

    def merge(self, left: S, right: S) -> S:
        """The state of the events of both. It may change and return either."""
        raise NotImplementedError

    def result(self, state: S) -> V:
        raise NotImplementedError

    def bind(self, event: type[Event], name: str, interleaved: bool) -> ColumnAggregate:
        takes, kept, gives = type_arguments(type(self), Aggregate)
        if not issubclass(event, takes):
            raise wrong_field(
                f"{name}={type(self).__name__}() takes {takes.__name__}, but the window has {event.__name__}",
                f"declare class {type(self).__name__}(Aggregate[{event.__name__}, ...])",
            )
        return _Custom(self, takes, name, kept, gives)


class _Custom(ColumnAggregate):
    depends_on_order = True  # it may

    def __init__(self, given: Any, event: type[Event], name: str, kept: Any, gives: Any) -> None:
        self._given, self._event, self.name = given, event, name
        self._adds, self._merges, self._results = (
            getattr(given, method, None) for method in ("add_batch", "merge_batch", "result_batch")
        )
        self.is_pure = given.pure or not (self._adds or self._merges or self._results)
        self.result_type = gives
        self.columns = {name: (optional(kept), None)}

    def partial(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        if self._adds is not None:
            return self._checked(self._adds(batch, groups.codes, groups.count), groups.count, "add_batch")
        states = [self._given.create() for _ in range(groups.count)]
        for code, event in zip(groups.codes.tolist(), to_structs(self._event, batch), strict=True):
            states[code] = self._given.add(states[code], event)
        return self._built(states)

    def merge(self, left: Parts, right: Parts) -> Parts:
        if self._merges is not None:
            made = self._merges(left[self.name], right[self.name])
            return self._checked(made, len(left[self.name]), "merge_batch")
        pairs = zip(self._states(left), self._states(right), strict=True)
        return self._built([self._given.merge(a, b) for a, b in pairs])

    def result(self, parts: Parts) -> pa.Array:
        if self._results is not None:
            found = self._results(parts[self.name])
            return self._checked(found, len(parts[self.name]), "result_batch", self.result_field.arrow)[self.name]
        return self._build(self.result_field, [self._given.result(state) for state in self._states(parts)], "result")

    def _states(self, parts: Parts) -> list[Any]:
        column = parts[self.name]
        return list(self.fields[self.name].restore(column.to_pylist()))

    def _built(self, states: list[Any]) -> Parts:
        if any(state is None for state in states):
            raise self._wrong("add or merge", "None", "a state")
        return {self.name: self._build(self.fields[self.name], states, "state")}

    def _build(self, field: Any, values: list[Any], what: str) -> pa.Array:
        try:
            return field.build(values)
        except Misfit as misfit:
            raise self._wrong(f"the {what}", str(misfit), field.name) from None

    def _checked(self, made: Any, count: int, method: str, kind: pa.DataType | None = None) -> Parts:
        kind = kind or self.fields[self.name].arrow
        if not isinstance(made, pa.Array) or len(made) != count:
            raise self._wrong(method, f"{type(made).__name__} of {len(made)}", f"an Arrow array of {count}")
        return {self.name: made if made.type == kind else made.cast(kind)}

    def _wrong(self, what: str, found: str, wanted: str) -> JobFailed:
        return JobFailed(
            "SW-WINDOW-VALUE",
            f"{self.name}: {what} of {type(self._given).__name__} gives {found}",
            f"return {wanted}",
            retryable=False,
            about_one_event=True,
        )
