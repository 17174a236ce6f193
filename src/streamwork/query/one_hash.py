"""`hash_columns` of one key, in plain Python: for one key at a time, numpy takes ten times as long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Context, Decimal
from hashlib import blake2b
from typing import Any

from streamwork.components.times import BEGINNING, microseconds

_MASK = (1 << 64) - 1
_NULL = 0x9E3779B97F4A7C15
_LONG = 512
_WIDE = Context(prec=80)
_FIRST_DAY = BEGINNING.date().toordinal()


def hash_one(values: Sequence[Any], scales: Sequence[int | None]) -> int:
    """The number that `hash_columns` gives a row of these values; `scales` are those of Decimal columns."""
    total = 0
    for value, scale in zip(values, scales, strict=True):
        total = _mix((total * 31 + _hash(value, scale)) & _MASK)
    return total


def _hash(value: Any, scale: int | None) -> int:
    if isinstance(value, str):
        return _hash_bytes(value.encode())
    if value is None:
        return _NULL
    if isinstance(value, bytes):
        return _hash_bytes(value)
    if isinstance(value, int):  # also a bool
        return int(value) & _MASK
    if isinstance(value, datetime):
        return microseconds(value) & _MASK
    if isinstance(value, date):
        return (value.toordinal() - _FIRST_DAY) & _MASK
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(scale or 0, _WIDE))
        return ((unscaled & _MASK) + _mix((unscaled >> 64) & _MASK)) & _MASK
    raise TypeError(f"{type(value).__name__} cannot be a key")


def _hash_bytes(value: bytes) -> int:
    size = len(value)
    if size > _LONG:
        return int.from_bytes(blake2b(value, digest_size=8).digest(), "little")
    total = size
    for at in range(0, size, 8):
        total = _mix(total ^ int.from_bytes(value[at : at + 8], "little"))
    return total


def _mix(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
