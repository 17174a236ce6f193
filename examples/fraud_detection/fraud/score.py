"""`Score`: the opinion of one analyser about one transaction."""

from __future__ import annotations

from streamwork import Event

AVERAGE_TICKET = "average-ticket"
PROXIMITY = "proximity"
COUNT = "count"
ANALYSERS = frozenset({AVERAGE_TICKET, PROXIMITY, COUNT})


class Score(Event):
    transaction: str
    card: str
    analyser: str
    score: float  # 0: as usual; 1: enough to call it fraud


def between(low: float, value: float, high: float) -> float:
    """0 up to `low`, 1 from `high` on, and a straight line between."""
    return min(1.0, max(0.0, (value - low) / (high - low)))
