"""Plain functions as operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Event, EventCollector, Instance, KeyedOperator, Operator, Record
from streamwork.components.expression import Expression
from streamwork.components.operator import check_record


class _Function(Operator[Any, Any]):
    """An operator that calls a function. Its types are given to the constructor."""

    preserves_events = False  # True if it emits some of the events that it was given, unchanged

    def __init__(
        self, function: Callable[[Any], Any], takes: type[Event], gives: type[Event], keeps_key: bool | None = None
    ) -> None:
        self._function = function
        self._types = (takes, gives)
        if keeps_key is not None:
            self.keeps_key = keeps_key

    def types(self) -> tuple[type[Event], type[Event]]:
        return self._types


class Map(_Function):
    """One event for each event."""

    def apply(self, event: Any, collector: EventCollector) -> None:
        collector.emit(self._function(event))


class FlatMap(_Function):
    """Any number of events for each event."""

    def apply(self, event: Any, collector: EventCollector) -> None:
        made: Iterable[Any] = self._function(event)
        for one in made:
            collector.emit(one)


class Filter(_Function):
    """The events for which the function returns something true."""

    preserves_events = keeps_key = True

    def apply(self, event: Any, collector: EventCollector) -> None:
        if self._function(event):
            collector.emit(event)


class Where(Operator[Any, Any]):
    """The events for which an expression is true; hosts may run it as native code."""

    preserves_events = keeps_key = True

    def __init__(self, expression: Expression, event: type[Event]) -> None:
        self.expression = expression
        self._event = event

    def setup_instance(self, instance: Instance) -> None:
        self._test = self.expression.to_python(self._event)
        self._mask = self.expression.to_arrow(self._event)

    def mask(self, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """Which rows are kept."""
        return np.asarray(self._mask(batch).fill_null(False).to_numpy(zero_copy_only=False))

    def apply(self, event: Any, collector: EventCollector) -> None:
        if self._test(event):
            collector.emit(event)

    def types(self) -> tuple[type[Event], type[Event]]:
        return self._event, self._event


class MapWithState(KeyedOperator[Any, Any, Any]):
    """``function(event, state)`` changes the record and returns one event, or None for none."""

    def __init__(
        self,
        function: Callable[[Any, Any], Any],
        takes: type[Event],
        keeps: type[Record],
        gives: type[Event],
        keeps_key: bool = False,
    ) -> None:
        self.keeps_key = keeps_key
        self._function = function
        self._types = (takes, check_record(keeps), gives)

    def apply(self, event: Any, state: Any, collector: EventCollector) -> None:
        made = self._function(event, state)
        if made is not None:
            collector.emit(made)

    def types(self) -> tuple[type[Event], type[Record], type[Event]]:
        return self._types
