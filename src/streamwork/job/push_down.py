"""Push-down: the part of a source's chain that runs in Spark's JVM, before rows reach Python.

It consists of the source and of the `where` steps directly behind it, as long as Spark's result is provably the same as that of
`components.predicates`, and no other component reads the events in between. `hosts.spark_filter` guards against NaN, negative zero
and time zones. Comparisons of Decimals stay in Python: Spark converts both sides to one type of at most 38 digits, and rounds
values that do not fit.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import msgspec

from streamwork.components.expression import Expression
from streamwork.components.predicates import CompareOp, Kind, LogicOp, Visitor
from streamwork.components.schema import fields_of
from streamwork.job.graph import Graph
from streamwork.job.node import Node
from streamwork.operators import Where


@dataclass(frozen=True)
class Native:
    """A source whose rows are in the JVM, and the filters behind it that Spark applies."""

    source: str
    filters: tuple[str, ...]
    rest: str  # why the next filter runs in Python; empty if there is none

    def text(self, graph: Graph) -> str:
        """The chain as text, for `--explain`."""
        return " -> ".join([self.source, *(f"{name} ({graph[name].component.expression!r})" for name in self.filters)])


def native_part(graph: Graph, source: Node, together: Set[tuple[str, str]]) -> Native | None:
    """The part of a source's chain that runs in the JVM; None if its rows are not there. `together` are edges without exchange."""
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
    """Why Spark cannot apply a filter; empty if it can."""
    assert source.gives is not None
    nested = [name for name, field in fields_of(source.gives).items() if field.arrow.num_fields]
    if readers > 1:
        return f"other components also read from {before}"
    if len(found.inputs) > 1 or not together:
        return "its input comes from several instances or components"
    if source.time is not None:
        return f"every event of {source.id} advances the watermark"
    if nested:
        return f"the content of {source.gives.__name__}.{nested[0]} is checked where events enter Python"
    if not is_exact(found.component.expression, source.gives):
        return "it compares Decimals, which Spark may round"
    return ""


def is_exact(expression: Expression, event: type[msgspec.Struct]) -> bool:
    """Whether Spark evaluates an expression exactly as `components.predicates` does."""
    return expression.fold(event, _Exactness())


class _Exactness(Visitor[bool]):
    def field(self, name: str, kind: Kind, nullable: bool) -> bool:
        return True

    def literal(self, value: Any, kind: Kind) -> bool:
        return True

    def to_float(self, operand: bool) -> bool:
        return operand

    def compare(self, op: CompareOp, left: bool, right: bool, kind: Kind) -> bool:
        return left and right and kind is not Kind.DECIMAL

    def logic(self, op: LogicOp, left: bool, right: bool) -> bool:
        return left and right

    def negate(self, operand: bool) -> bool:
        return operand

    def is_null(self, operand: bool) -> bool:
        return operand

    def is_in(self, operand: bool, values: tuple[Any, ...], kind: Kind) -> bool:
        return operand and kind is not Kind.DECIMAL
