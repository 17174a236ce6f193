"""How far a chain runs where the rows of its source are: in Spark's JVM, before the first of them comes to Python.

That is the source and the `where` steps directly behind it, as far as Spark provably finds the same truth as we do. What an
event means to others must not depend on it; so a filter stays in Python where somebody else looks at the events before it.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from streamwork.components.schema import fields_of
from streamwork.job.exactness import is_exact
from streamwork.job.graph import Graph, Node
from streamwork.operators import Where


@dataclass(frozen=True)
class Native:
    """A source in the JVM, and the filters behind it that Spark applies."""

    source: str
    filters: tuple[str, ...]
    rest: str  # why the next filter runs in Python; empty if there is none

    def told(self, graph: Graph) -> str:
        """For people."""
        return " -> ".join([self.source, *(f"{name} ({graph[name].component.expression!r})" for name in self.filters)])


def native_part(graph: Graph, source: Node, together: Set[tuple[str, str]]) -> Native | None:
    """What of a source's chain runs in the JVM; None if its rows are elsewhere. `together` are the edges without exchange."""
    if source.component.native() is None:
        return None
    filters: list[str] = []
    while True:
        before = filters[-1] if filters else source.id
        readers = [node for node in graph.nodes for one in node.inputs if one.node == before]
        found = next((node for node in readers if type(node.component) is Where), None)
        if found is None:
            return Native(source.id, tuple(filters), "")
        if why := _why_not(source, before, found, len(readers), (before, found.id) in together):
            return Native(source.id, tuple(filters), f"{found.id} is not applied by Spark: {why}")
        filters.append(found.id)


def _why_not(source: Node, before: str, found: Node, readers: int, together: bool) -> str:
    """Why a filter cannot be applied before its events come to Python; empty if it can."""
    assert source.gives is not None
    nested = [name for name, field in fields_of(source.gives).items() if field.arrow.num_fields]
    if readers > 1:
        return f"others read from {before} too"
    if len(found.inputs) > 1 or not together:
        return "what it reads comes from several instances or components"
    if source.time is not None:
        return f"how far event time has come is read off every event of {source.id}"
    if nested:
        return f"what is inside {source.gives.__name__}.{nested[0]} is checked where events enter Python"
    if not is_exact(found.component.expression, source.gives):
        return "it compares Decimals, which Spark may round"
    return ""
