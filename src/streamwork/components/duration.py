"""Durations as text, such as "10min"."""

from __future__ import annotations

import re

from streamwork.errors import WrongUse

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|h|d)?")
LONGEST = 9999 * 366 * 86_400 * 1_000_000
"""Microseconds. Twice that, added to any time, is an int64."""
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


class Duration(str):
    """A duration as text, such as ``"10min"``: checked when it is made, and usable wherever a duration is taken."""

    __slots__ = ()

    def __new__(cls, text: str) -> Duration:
        duration_in_microseconds(text)
        return super().__new__(cls, text)

    @property
    def seconds(self) -> float:
        return seconds(str(self))


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
    found = round(seconds(duration) * 1_000_000)
    if found > LONGEST:
        raise WrongUse("SW-JOB-SETTING", f"{duration!r} is longer than event time is", "use at most 9999 years")
    return found
