"""The component responsible for events that do not fit their type, where that is detected only when columns are built.

It is the operator that emitted them, however far behind it that is detected: not the sink, and no filter, which passes on what it
was given. Where streams have met, it is one of several.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from streamwork.components.columns import Columns, as_columns
from streamwork.components.operator import isolates_failures
from streamwork.components.validation import check_fits
from streamwork.errors import StreamworkError
from streamwork.job import Graph, Input, NodeKind


class Blame(NamedTuple):
    where: str  # as errors name it
    component: str = ""
    """The component whose `on_error` would set the event aside; empty if there is none, or one of several."""

    @classmethod
    def of(cls, graph: Graph, inputs: Iterable[Input]) -> Blame:
        """For what comes through these."""
        made = sorted({str(one) for given in inputs for one in _makers(graph, given)})
        return cls(" or ".join(made), answering(graph, made[0].partition(":")[0]) if len(made) == 1 else "")

    @classmethod
    def of_state(cls, graph: Graph, component: str) -> Blame:
        """For what a component keeps."""
        return cls(component, answering(graph, component))

    def put_on(self, error: StreamworkError) -> None:
        if error.about_one_event and not error.component:
            error.component = self.component

    @contextlib.contextmanager
    def blaming(self) -> Iterator[None]:
        """Put it on errors that are raised inside."""
        try:
            yield
        except StreamworkError as error:
            self.put_on(error)
            raise

    def check(self, events: Sequence[Any]) -> None:
        """Refuse the first of these events, all of one type, that does not fit."""
        with self.blaming():
            for event in events:
                check_fits(type(event), [event], self.where)

    def columns(self, kind: type[msgspec.Struct], given: Sequence[list[Any] | Columns]) -> list[Columns]:
        """In as few pieces as the limit allows (`as_columns`)."""
        with self.blaming():
            return as_columns(kind, given, self.where)


def answering(graph: Graph, component: str) -> str:
    """Its id if its `on_error` can set single events aside, else nothing."""
    return component if isolates_failures(graph[component].component) else ""


def _makers(graph: Graph, given: Input) -> Iterable[Input]:
    node = graph[given.node]
    if node.kind is not NodeKind.OPERATOR or not getattr(node.component, "preserves_events", False):
        return [given]
    return [one for before in node.inputs for one in _makers(graph, before)]
