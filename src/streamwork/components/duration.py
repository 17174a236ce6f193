"""Durations as text, such as "10min"."""

from __future__ import annotations

import re

from streamwork.errors import WrongUse

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds(duration: str | float) -> float:
    """A duration in seconds: a number of seconds, or text such as ``"500ms"``, ``"1s"``, ``"10min"``, ``"5"`` (seconds)."""
    if isinstance(duration, int | float) and not isinstance(duration, bool) and 0 <= duration < float("inf"):
        return float(duration)
    found = _DURATION.fullmatch(duration.strip()) if isinstance(duration, str) else None
    if found is None:
        raise WrongUse(
            "SW-JOB-SETTING", f"{duration!r} is not a duration", 'write a number and a unit: "500ms", "1s", "10min"'
        )
    return float(found[1]) * _SECONDS[found[2] or "s"]


def duration_in_microseconds(duration: str | float) -> int:
    """A duration in whole microseconds, as windows and joins compare event times."""
    return round(seconds(duration) * 1_000_000)
