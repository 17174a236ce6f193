"""The repeats of a measurement, with their median, minimum and maximum."""

from __future__ import annotations

import statistics
from typing import Any


def spread(values: list[float], digits: int = 3) -> dict[str, Any]:
    """All repeats, with median, minimum and maximum."""
    rounded = [round(value, digits or None) for value in values]
    middle = round(statistics.median(values), digits or None)
    return {"median": middle, "min": min(rounded), "max": max(rounded), "repeats": rounded}
