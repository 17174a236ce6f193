"""Event time in a job: which field of a stream's events carries it.

``time=`` is declared at the sources. A window, table or join uses the field of that name, unless it names another one: behind a
`map`, for example, that renames it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from streamwork.components import Event
from streamwork.components.field_types import FieldType
from streamwork.components.schema import fields_of
from streamwork.errors import WrongUse
from streamwork.job.node import Input, Node, NodeKind


def declared_times(nodes: Mapping[str, Node], inputs: Iterable[Input]) -> dict[str, str | None]:
    """The sources that a stream comes from, and their time fields; None for a source without event time."""
    found: dict[str, str | None] = {}
    waiting, seen = [one.node for one in inputs], set[str]()
    while waiting:
        node = nodes[waiting.pop()]
        if node.id in seen:
            continue
        seen.add(node.id)
        if node.kind is NodeKind.SOURCE:
            found[node.id] = node.time
        waiting += [one.node for one in node.inputs]
    return found


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
    times = set(declared.values())
    name = given if given is not None else next(iter(times)) if len(times) == 1 else None
    known = fields_of(event)
    if name is None or name not in known or not pa.types.is_timestamp(known[name].arrow) or known[name].nullable:
        raise WrongUse(
            "SW-JOB-TIME",
            f"{what} goes by event time, but {event.__name__} has no datetime field {name!r} that is always there"
            if name is not None
            else f"{what} goes by event time, but its sources have different time fields",
            f"name the field that carries it; datetime fields are: {_datetimes(known)}",
        )
    return name


def _datetimes(known: Mapping[str, FieldType]) -> str:
    return ", ".join(n for n, field in known.items() if pa.types.is_timestamp(field.arrow)) or "none"
