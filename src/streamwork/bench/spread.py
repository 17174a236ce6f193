"""The repeats of a measurement, for people and programs."""

from __future__ import annotations

import statistics
from typing import Any


def spread(values: list[float], digits: int = 3) -> dict[str, Any]:
    """Each repeat, and what lies in the middle and at the ends."""
    rounded = [round(value, digits or None) for value in values]
    middle = round(statistics.median(values), digits or None)
    return {"median": middle, "min": min(rounded), "max": max(rounded), "repeats": rounded}
