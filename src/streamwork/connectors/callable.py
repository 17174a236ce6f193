"""A function as a sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, overload

import pyarrow as pa

from streamwork.components import Event, RowsRejected, Sink, SinkKind, WriteStopped
from streamwork.components.columns import to_structs
from streamwork.components.schema import show
from streamwork.errors import JobFailed, StreamworkError

E = TypeVar("E", bound=Event)


class CallableSink(Sink[E], Generic[E]):
    """Calls `function` with every event; with ``lists=True`` with lists of them, of any length but none.

    It keeps no ledger, so a failure may call it again with the same events (at-least-once), or never (at-most-once). It runs in
    the instances, which may be several processes at once, so it must be importable there. `RowsRejected`, raised by the function,
    says that the events themselves are to blame. Whatever it raises, `on_error` decides what becomes of the event, or of the list,
    that it was given.
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
                "mend the function; where the events are to blame, let it raise RowsRejected",
            ) from error
