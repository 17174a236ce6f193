"""The event that a join emits: which field of which side becomes which field of the result.

Fields of the left side keep their names. A key field of another side that is named like the left side's is the same value, and
comes once. A field of another side whose name is taken gets the name of its side before it: ``zones_name``. A field may be
missing, and is optional, where the kind of join emits rows without that side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from streamwork.components import Event
from streamwork.components.made import annotations_of, make_event
from streamwork.components.schema import fields_of
from streamwork.errors import WrongUse
from streamwork.operators.joins.kinds import JoinKind

LEFT = 0
"""The number of the left side."""


class Side(NamedTuple):
    """One side of a join."""

    name: str
    event: type[Event]
    key: tuple[str, ...]


class Source(NamedTuple):
    """Where a field of the result comes from."""

    side: int
    field: str
    annotation: Any


class Result(NamedTuple):
    """The type that a join emits, and where its fields come from."""

    event: type[Event]
    fields: dict[str, Source]

    def of_side(self, side: int) -> list[str]:
        """The fields of a side that the result has."""
        return [source.field for source in self.fields.values() if source.side == side]


def result_of(sides: Sequence[Side], kind: JoinKind, name: str, to: type[Event] | None = None) -> Result:
    """The result of a join; `name` is its id. With `to`, events of that type, whose fields are found by name."""
    fields = _fields(sides, kind)
    if to is not None:
        return Result(to, _chosen(fields, to, sides))
    event = make_event(_type_name(name), {field: source.annotation for field, source in fields.items()})
    return Result(event, fields)


def _fields(sides: Sequence[Side], kind: JoinKind) -> dict[str, Source]:
    left = sides[LEFT]
    found: dict[str, Source] = {}
    for number, side in enumerate(sides):
        missing = kind.keeps_right if number == LEFT else kind.keeps_left
        for field, annotation in annotations_of(side.event).items():
            place = side.key.index(field) if field in side.key else None
            shared = place is not None and all(one.key[place] == field for one in sides)
            is_null = shared and any(fields_of(one.event)[field].nullable for one in sides)
            if number != LEFT and place is not None and left.key[place] == field:
                continue  # equal to the left side's
            optional = missing and (not shared or is_null)
            source = Source(number, field, annotation | None if optional else annotation)
            target = field if field not in found else f"{side.name.replace('-', '_')}_{field}"
            if target in found:
                raise WrongUse(
                    "SW-JOIN-FIELD",
                    f"both {sides[found[target].side].name} and {side.name} have a field for {target!r} of the result",
                    "rename one of them before the join, with map",
                )
            found[target] = source
    return found


def _chosen(fields: dict[str, Source], to: type[Event], sides: Sequence[Side]) -> dict[str, Source]:
    """The fields of `to`, found by name."""
    chosen: dict[str, Source] = {}
    for name, wanted in fields_of(to).items():
        if name not in fields:
            raise WrongUse(
                "SW-JOIN-FIELD",
                f"{to.__name__}.{name} is not a field of the result",
                f"use some of: {', '.join(fields)}",
            )
        source = fields[name]
        given = fields_of(make_event("Field", {name: source.annotation}))[name]
        if given.arrow != wanted.arrow or (given.nullable and not wanted.nullable):
            optional = "optional " if given.nullable else ""
            raise WrongUse(
                "SW-JOIN-FIELD",
                f"{to.__name__}.{name} is {wanted.name}, but {source.field!r} of {sides[source.side].name} is "
                f"{optional}{given.name} here",
                f"declare it as {given.name}{' | None' if given.nullable else ''}",
            )
        chosen[name] = source
    return chosen


def _type_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.replace("-", "_").split("_") if part) or "Joined"
