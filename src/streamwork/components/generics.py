"""Type arguments of generic classes: those of ``class PerCard(KeyedOperator[Transaction, Totals, Usage])``."""

from __future__ import annotations

import typing
from typing import Any

from streamwork.errors import WrongUse


def type_arguments(cls: type, base: type) -> tuple[type, ...]:
    """The type arguments that `cls` gives to the generic class `base`, directly or through classes in between."""
    found = _arguments(cls, base)
    if found is None or any(isinstance(a, typing.TypeVar) for a in found):
        names = ", ".join(p.__name__ for p in getattr(base, "__parameters__", ()))
        raise WrongUse(
            "SW-TYPE-MISSING",
            f"{cls.__name__} does not declare its types",
            f"write class {cls.__name__}({base.__name__}[{names}]) with your own types in the brackets",
        )
    return found


def _arguments(cls: type, base: type) -> tuple[Any, ...] | None:
    for generic in getattr(cls, "__orig_bases__", ()):
        origin, given = typing.get_origin(generic), typing.get_args(generic)
        if origin is base:
            return given
        if isinstance(origin, type) and issubclass(origin, base):
            inherited = _arguments(origin, base)
            if inherited is not None:
                known = dict(zip(origin.__parameters__, given, strict=True))  # type: ignore[attr-defined]
                return tuple(known.get(a, a) for a in inherited)
    for parent in cls.__bases__:
        if issubclass(parent, base) and parent is not base:
            inherited = _arguments(parent, base)
            if inherited is not None:
                return inherited
    return None
