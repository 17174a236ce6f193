"""Sizes as text, such as "512MB"."""

from __future__ import annotations

import re

from streamwork.errors import WrongUse

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB|GB|TB)", re.IGNORECASE)
_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def size(text: str | int) -> int:
    """A size in bytes: a number of bytes, or text such as ``"512MB"``, ``"1GB"``. A KB is 1,024 bytes."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    found = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise WrongUse("SW-JOB-SETTING", f"{text!r} is not a size", 'write a number and a unit: "512MB", "1GB"')
    return int(float(found[1]) * _BYTES[found[2].upper()])
