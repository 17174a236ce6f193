"""A function as a sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, overload

import pyarrow as pa

from streamwork.components import Event, RowsRejected, Sink, SinkKind, WriteStopped
from streamwork.components.columns import to_structs
from streamwork.components.field_types import show
from streamwork.errors import JobFailed, StreamworkError

E = TypeVar("E", bound=Event)


class CallableSink(Sink[E], Generic[E]):
    """Calls `function` with every event, or, with ``lists=True``, with non-empty lists of events.

    It keeps no ledger: after a failure the function is called again with the same events (at-least-once), or not called for them
    (at-most-once). It runs in the instances, which may be several processes, so the function must be importable there. The function
    raises `RowsRejected` if the events themselves are at fault. `on_error` applies to the event, or the list, for which it raised.
    """

    kind = SinkKind.APPEND

    @overload
    def __init__(self, function: Callable[[E], object], lists: Literal[False] = False) -> None: ...

    @overload
    def __init__(self, function: Callable[[list[E]], object], lists: Literal[True]) -> None: ...

    def __init__(self, function: Callable[[Any], object], lists: bool = False) -> None:
        self._function = function
        self._lists = lists
        self._event: type[E]

    def open(self, event: type[E]) -> None:
        self._event = event

    def write(self, batch: pa.RecordBatch) -> None:
        events = to_structs(self._event, batch)
        if self._lists:
            if events:
                self._call(events)
            return
        for place, event in enumerate(events):
            try:
                self._call(event)
            except (RowsRejected, StreamworkError) as error:
                raise WriteStopped(place, error) from error

    def _call(self, given: Any) -> None:
        try:
            self._function(given)
        except (RowsRejected, StreamworkError):
            raise
        except Exception as error:
            name = getattr(self._function, "__qualname__", type(self._function).__name__)
            raise JobFailed(
                "SW-SINK-FUNCTION",
                f"{name} raised {type(error).__name__}: {error}, given {show(given)}",
                "fix the function; if the events are at fault, raise RowsRejected in it",
            ) from error
