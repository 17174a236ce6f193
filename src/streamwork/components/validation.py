"""Checks whether single events and records fit their declared types.

Arrow decides (`FieldType.build`), but building columns for one event costs more than applying it. So a function is generated for
each type, as dataclasses do it, that answers in a fraction of the time. Where it is not certain, Arrow decides.
"""

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from streamwork.components.columns import to_batch
from streamwork.components.field_types import (
    EXACT,
    INT_RANGE,
    DateType,
    DecimalType,
    FieldType,
    IntType,
    ListType,
    MapType,
    TimeType,
    is_time,
)
from streamwork.components.schema import NestedType, fields_of


def check_fits(kind: type[msgspec.Struct], structs: Iterable[Any], where: str) -> None:
    """Raise for the first that does not fit, like building an Arrow batch: SW-TYPE-EVENT, SW-TYPE-VALUE."""
    fits = fitting(kind)
    for struct in structs:
        if not fits(struct):
            to_batch(kind, [struct], where)


@functools.cache
def fitting(kind: type[msgspec.Struct]) -> Callable[[Any], bool]:
    """A quick test of a whole event or record. False means that it may not fit: `check_fits` decides."""
    names = {"kind": kind}
    tests = ["type(s) is kind"]
    for number, (name, field) in enumerate(fields_of(kind).items()):
        if keyword.iskeyword(name) or not name.isidentifier():
            return lambda struct: False
        tests.append(_test(field, f"s.{name}", f"v{number}", names))
    return _made(" and ".join(tests), names)


def _test(field: FieldType, value: str, name: str, names: dict[str, Any]) -> str:
    """Python source that tests whether the value of an expression fits. `name` is a free variable; `names` are its globals."""
    test = _present(field, name, names)
    if field.nullable:
        return f"(({name} := {value}) is None or {test})"
    return test.replace(f"type({name})", f"type({name} := {value})", 1)


def _present(field: FieldType, v: str, names: dict[str, Any]) -> str:
    """The same for a value of that name that is not None; the type is tested first."""
    if isinstance(field, IntType):
        whole = f"(type({v}) is int or isinstance({v}, int) and type({v}) is not bool)"
        return f"{whole} and {INT_RANGE[0]} <= {v} <= {INT_RANGE[1]}"
    if isinstance(field, TimeType):
        names["datetime"], names["UTC"], names["is_time"] = datetime, UTC, is_time
        return f"type({v}) is datetime and ({v}.tzinfo is UTC or is_time({v}))"
    if isinstance(field, DateType):
        names["date"] = date
        return f"type({v}) is date"
    if isinstance(field, NestedType):
        names[f"kind_{v}"], names[f"fits_{v}"] = field.kind, fitting(field.kind)
        return f"type({v}) is kind_{v} and fits_{v}({v})"
    if isinstance(field, ListType):
        names[f"item_{v}"] = _alone(field.item)
        return f"type({v}) is list and all(map(item_{v}, {v}))"
    if isinstance(field, MapType):
        names[f"key_{v}"], names[f"item_{v}"] = _alone(field.key), _alone(field.item)
        return f"type({v}) is dict and all(map(key_{v}, {v})) and all(map(item_{v}, {v}.values()))"
    if pa.types.is_string(field.arrow):
        names["is_whole"] = is_whole
        return f"(type({v}) is str or isinstance({v}, str)) and ({v}.isascii() or is_whole({v}))"
    if pa.types.is_floating(field.arrow):
        is_whole_number = f"type({v}) is int and {-EXACT} <= {v} <= {EXACT}"
        return f"(type({v}) is float or isinstance({v}, float) or {is_whole_number})"
    if pa.types.is_boolean(field.arrow):
        return f"type({v}) is bool"
    if pa.types.is_binary(field.arrow):
        return f"type({v}) is bytes"
    assert isinstance(field, DecimalType)
    names["Decimal"], names[f"holds_{v}"] = Decimal, field.holds
    return f"type({v}) is Decimal and holds_{v}({v})"


def _alone(field: FieldType) -> Callable[[Any], bool]:
    """The same for the items of a list or a dict."""
    names: dict[str, Any] = {}
    return _made(_test(field, "s", "v", names), names)


def _made(test: str, names: dict[str, Any]) -> Callable[[Any], bool]:
    function: Callable[[Any], bool] = eval(f"lambda s: {test}", names)  # the source has only names of fields
    return function


def is_whole(text: str) -> bool:
    """False if it holds half of a surrogate pair, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
