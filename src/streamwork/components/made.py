"""Types that are made while a job is built: the result of a join, the records of windows, tables and joins.

A type is known by its name and fields: making it twice gives the same type. It is pickled as these, and a worker makes it again.
Its fields come from those of a user's types, and so do their former names (`renamed_from`).
"""

from __future__ import annotations

import copyreg
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from streamwork.components.values import Event, Record

Fields = tuple[tuple[Any, ...], ...]
Renames = tuple[tuple[str, str], ...]
Recipe = tuple[str, type[msgspec.Struct], Fields, Renames]
_known: dict[Recipe, type[Any]] = {}
_recipes: dict[type[Any], Recipe] = {}


def make_event(name: str, fields: Mapping[str, Any], renamed: Mapping[str, str] | None = None) -> type[Event]:
    """An event type with these fields: name -> annotation."""
    return _make(name, Event, tuple(fields.items()), _of_fields(renamed, fields))


def make_record(
    name: str, fields: Mapping[str, tuple[Any, Any]], renamed: Mapping[str, str] | None = None
) -> type[Record]:
    """A record type with these fields: name -> (annotation, default). A default is an immutable value."""
    made = tuple((field, *rest) for field, rest in fields.items())
    return _make(name, Record, made, _of_fields(renamed, fields))


def _of_fields(renamed: Mapping[str, str] | None, fields: Mapping[str, Any]) -> Renames:
    return tuple((now, was) for now, was in (renamed or {}).items() if now in fields)


def is_made(kind: type[Any]) -> bool:
    """True if a type was made here: no user's class has its fields."""
    return kind in _recipes


def annotations_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Name -> annotation of each field, to make another type of them."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.__struct_fields__}


def _make(name: str, base: type[Any], fields: Fields, renamed: Renames) -> type[Any]:
    recipe = (name, base, fields, renamed)
    if recipe not in _known:
        made: type[Any] = msgspec.defstruct(
            name, fields, bases=(base,), namespace={"renamed_from": dict(renamed)}, module=__name__
        )
        made.__qualname__ = f"{name}_{len(_known) + 1}"  # several types may have one name
        setattr(sys.modules[__name__], made.__qualname__, made)  # cloudpickle copies classes that no module has
        _known[recipe] = made
        _recipes[made] = recipe
    return _known[recipe]


def _reduce(kind: type[Any]) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
    """How pickle stores a type: one that was made by its recipe, any other by its name."""
    return (_make, _recipes[kind]) if kind in _recipes else kind.__qualname__


copyreg.pickle(type(Event), _reduce)  # of all structs: pickle asks by the type of a type
