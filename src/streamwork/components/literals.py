"""Literals in expressions: their kinds, what they can be compared with, and errors about those that cannot."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from streamwork.components.field_types import INT_RANGE, is_time, show
from streamwork.components.predicates import Kind
from streamwork.errors import WrongUse

MAX_DIGITS = 38
ORDERED = frozenset(Kind) - {Kind.BOOL, Kind.NESTED}
_KINDS: dict[type, Kind] = {  # in this order: a bool is an int, a datetime is a date
    str: Kind.TEXT,
    bool: Kind.BOOL,
    int: Kind.INT,
    float: Kind.FLOAT,
    bytes: Kind.BYTES,
    datetime: Kind.TIME,
    date: Kind.DATE,
    Decimal: Kind.DECIMAL,
}
# Of an IntEnum or another subclass only the value counts: Arrow stores nothing else.
_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    datetime: lambda value: value.astimezone(UTC),
}


def plain(value: Any) -> Any:
    """The value as one of the comparable types; times in UTC. Refuses values that no column can hold."""
    if value is None:
        raise misuse("nothing is equal to None: null is unknown", "use field(...).is_null() or ~field(...).is_null()")
    base = next((k for k in _KINDS if isinstance(value, k)), None)
    if base is None:
        words = ", ".join(k.__name__ for k in _KINDS)
        raise wrong_type(f"{show(value)} is {a(type(value).__name__)}, which no field is", f"use one of {words}")
    if base is int and not INT_RANGE[0] <= value <= INT_RANGE[1]:
        raise wrong_type(f"{value} does not fit into 64 bits", "use a smaller number")
    if base is float and math.isnan(value):
        raise misuse("nothing is equal to NaN", 'use field("x") == field("x") to leave NaN out')
    if base is datetime and value.utcoffset() is None:
        raise wrong_type(f"{value!r} has no time zone", "add one: datetime(..., tzinfo=UTC)")
    if base is datetime and not is_time(value):
        raise wrong_type(f"{value.isoformat()} lies outside of year 1 to 9999 in UTC", "use a time between them")
    if base is Decimal and not _has_place(value):
        raise wrong_type(f"{value} has no place in a Decimal of {MAX_DIGITS} digits", "use another number")
    return _PLAIN.get(base, lambda same: same)(value)


def kind_of(value: Any) -> Kind:
    """The kind of a value that `plain` gave."""
    return next(kind for base, kind in _KINDS.items() if isinstance(value, base))


def converted(value: Any, kind: Kind) -> Any:
    """The value converted to `kind`, if nothing is lost; else None."""
    own = kind_of(value)
    if own is Kind.INT and kind is Kind.FLOAT:
        return float(value) if float(value) == value else None
    if own is Kind.INT and kind is Kind.DECIMAL:
        return Decimal(value)
    return value if own is kind else None


def common_kind(left: Kind, right: Kind, left_value: Any, right_value: Any) -> Kind | None:
    """The kind in which two sides are compared, None if there is none; a value is None where the side is no literal.

    Kinds mix only if nothing is lost: a whole number becomes a float or a Decimal if one is equal to it. An int field is
    compared with floats as the nearest float, as every engine does.
    """
    if left is right:
        return left
    for value, own, other in ((left_value, left, right), (right_value, right, left)):
        if value is not None and converted(value, other) is not None:
            return other
        if value is not None and own is Kind.INT:
            return None
    return Kind.FLOAT if {left, right} == {Kind.INT, Kind.FLOAT} else None


def a(kind: Kind | str) -> str:
    """A kind, with its article, in a sentence."""
    word = kind.value if isinstance(kind, Kind) else kind
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def wrong_type(cause: str, action: str) -> WrongUse:
    return WrongUse("SW-EXPR-TYPE", cause, action)


def misuse(cause: str, action: str) -> WrongUse:
    return WrongUse("SW-EXPR-MISUSE", cause, action)


def asked_for_truth(expression: object) -> WrongUse:
    return misuse(
        f"Python asks whether {expression!r} is true, but that is known only for an event",
        "use & for and, | for or, ~ for not, with brackets around each comparison; "
        "is_in([...]) for in; (a < x) & (x < b) for a < x < b; and no if",
    )


def no_condition(value: object) -> WrongUse:
    return misuse(
        f"{show(value)} stands beside & or |, which join conditions and bind tighter than ==",
        'put brackets around each comparison: (field("a") == 1) & (field("b") == 2)',
    )


def _has_place(value: Decimal) -> bool:
    if not value.is_finite():
        return False
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "as it is finite"
    return max(len(digits), -exponent, len(digits) + exponent) <= MAX_DIGITS
