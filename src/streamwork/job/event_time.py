"""Event time in a job: which field of a stream's events carries it.

``time=`` is declared at the sources. A window, table or join uses that field, as long as the steps before it pass events on
unchanged. Behind a step that makes new events, such as `map`, it names the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from streamwork.components import Event
from streamwork.components.field_types import FieldType
from streamwork.components.schema import fields_of
from streamwork.errors import WrongUse
from streamwork.job.node import Input, Node, NodeKind
from streamwork.operators.late import LATE


def sources_of(nodes: Mapping[str, Node], inputs: Iterable[Input]) -> list[Node]:
    """The sources that a stream comes from."""
    found: list[Node] = []
    waiting, seen = [one.node for one in inputs], set[str]()
    while waiting:
        node = nodes[waiting.pop()]
        if node.id in seen:
            continue
        seen.add(node.id)
        if node.kind is NodeKind.SOURCE:
            found.append(node)
        waiting += [one.node for one in node.inputs]
    return found


def declared_times(nodes: Mapping[str, Node], inputs: Iterable[Input]) -> dict[str, str | None]:
    """The sources that a stream comes from, and their time fields; None for a source without event time."""
    return {node.id: node.time for node in sources_of(nodes, inputs)}


def time_field(
    nodes: Mapping[str, Node], inputs: Iterable[Input], event: type[Event], given: str | None, what: str
) -> str:
    """The field that carries event time; `given` if that is not None. `what` names the step in errors."""
    declared = declared_times(nodes, inputs)
    for source, time in declared.items():
        if time is None:
            raise WrongUse(
                "SW-JOB-TIME",
                f"{what} goes by event time, but the source {source!r}, which it reads from, has none",
                f'declare the field that says when an event happened: job.source(..., id="{source}", time="at")',
            )
    name = given if given is not None else _carried(nodes, inputs)
    known = fields_of(event)
    if name is None or name not in known or not pa.types.is_timestamp(known[name].arrow) or known[name].nullable:
        why = f"{event.__name__} has no datetime field {name!r} that is always there"
        if name is None:
            differ = len(set(declared.values())) > 1
            why = "its sources have different time fields" if differ else "a step before it makes new events"
        raise WrongUse(
            "SW-JOB-TIME",
            f"{what} goes by event time, but {why}",
            f"name the field that carries it; datetime fields are: {_datetimes(known)}",
        )
    return name


def _datetimes(known: Mapping[str, FieldType]) -> str:
    return ", ".join(n for n, field in known.items() if pa.types.is_timestamp(field.arrow)) or "none"


def _carried(nodes: Mapping[str, Node], inputs: Iterable[Input]) -> str | None:
    """The time field of the sources, if all steps in between pass events on unchanged; late events are, but for fields behind."""
    found: set[str | None] = set()
    for one in inputs:
        node = nodes[one.node]
        if node.kind is NodeKind.SOURCE:
            found.add(node.time)
        elif getattr(node.component, "preserves_events", False) or (one.channel == LATE and len(node.ports) == 1):
            found.add(_carried(nodes, node.inputs))
        else:
            found.add(None)
    return found.pop() if len(found) == 1 else None
