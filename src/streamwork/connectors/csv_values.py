"""Parses CSV values: one strict reader for each type of field."""

from __future__ import annotations

import base64
import binascii
import functools
import math
import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from streamwork.components.field_types import INT_RANGE, DecimalType, FieldType, Misfit, is_time
from streamwork.components.predicates import Kind
from streamwork.components.schema import fields_of
from streamwork.errors import WrongUse

Reader = Callable[[str], Any]
# Python accepts more than other programs write (1_000, ٣, surrounding blanks). These patterns define a number.
_INT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|nan)")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_FINER = re.compile(r"[.,][0-9]{7}")  # than microseconds
_BOOLS = {word: word.lower() == "true" for word in ("true", "false", "True", "False", "TRUE", "FALSE")}


@functools.cache
def readers_of(event: type[msgspec.Struct]) -> dict[str, Reader]:
    """A reader for each field. It raises Misfit if the text is not a valid value. Empty text is null if the field is optional.

    Refuses an event with fields that have no text form in CSV: lists, dicts, nested events.
    """
    fields = fields_of(event)
    if not fields:
        raise WrongUse("SW-SOURCE-TYPE", f"{event.__name__} has no fields", "add the columns to read as fields")
    return {name: _reader(field, f"{event.__name__}.{name}") for name, field in fields.items()}


def _reader(field: FieldType, where: str) -> Reader:
    kind = Kind.of(field)
    if kind is Kind.NESTED:
        raise WrongUse(
            "SW-SOURCE-TYPE",
            f"{where} is a {field.name}, which has no form in CSV",
            "use str, int, float, bool, bytes, datetime, date or Decimal; or use JSON lines, which hold lists and events",
        )
    if kind is Kind.TEXT:
        return (lambda text: text or None) if field.nullable else str
    parse: Reader = _decimal(field) if kind is Kind.DECIMAL else _PARSERS[kind]
    name, nullable = field.name, field.nullable

    def read(text: str) -> Any:
        if nullable and not text:
            return None
        try:
            return parse(text)
        except (ValueError, ArithmeticError):
            raise Misfit(text, name) from None

    return read


def _int(text: str) -> int:
    value = int(_matching(_INT, text))
    if not INT_RANGE[0] <= value <= INT_RANGE[1]:
        raise ValueError(text)
    return value


def _float(text: str) -> float:
    value = float(_matching(_FLOAT, text))
    if math.isinf(value) and not text.endswith("inf"):
        raise ValueError(text)  # outside the range of a float
    return value


def _bool(text: str) -> bool:
    if text not in _BOOLS:
        raise ValueError(text)
    return _BOOLS[text]


def _time(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    if not is_time(value) or _FINER.search(text):
        raise ValueError(text)
    return value


def _bytes(text: str) -> bytes:
    """Base64, as in JSON."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(text) from error


def _decimal(field: FieldType) -> Reader:
    assert isinstance(field, DecimalType)
    return lambda text: field.at_scale(Decimal(_matching(_DECIMAL, text)))


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(text)
    return text


_PARSERS: dict[Kind, Reader] = {
    Kind.INT: _int,
    Kind.FLOAT: _float,
    Kind.BOOL: _bool,
    Kind.BYTES: _bytes,
    Kind.TIME: _time,
    Kind.DATE: date.fromisoformat,
}
