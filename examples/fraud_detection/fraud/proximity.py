"""Proximity: two places that are too far apart for the time between."""

from __future__ import annotations

from datetime import datetime
from math import asin, cos, radians, sin, sqrt

from streamwork import KeyedCollector, KeyedOperator, Record

from .score import PROXIMITY, Score, between
from .transaction import Transaction

EARTH_RADIUS = 6371.0  # km
NEAR = 50.0
"""Kilometres that say nothing: terminals are registered at the office of their owner."""
FAST, IMPOSSIBLE = 500.0, 1000.0
"""km/h: up to the first, the score is 0; from the second on, it is 1."""


class LastPlace(Record):
    latitude: float = 0.0
    longitude: float = 0.0
    at: datetime | None = None


class Proximity(KeyedOperator[Transaction, LastPlace, Score]):
    """A place where the card cannot have been is not remembered: the next payment at home is not suspicious."""

    def apply(self, event: Transaction, state: LastPlace, collector: KeyedCollector) -> None:
        score = 0.0
        if state.at is not None:
            far = distance(state.latitude, state.longitude, event.latitude, event.longitude)
            hours = abs((event.at - state.at).total_seconds()) / 3600  # transactions may arrive out of order
            if far > NEAR:
                score = between(FAST, far / hours, IMPOSSIBLE) if hours else 1.0
        if score < 1 and (state.at is None or event.at >= state.at):
            state.latitude, state.longitude, state.at = event.latitude, event.longitude, event.at
        collector.emit(Score(event.id, event.card, PROXIMITY, score))


def distance(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """Kilometres between two places along the earth's surface, by the haversine formula."""
    here, there = radians(latitude), radians(other_latitude)
    half = sin((there - here) / 2) ** 2
    half += cos(here) * cos(there) * sin(radians(other_longitude - longitude) / 2) ** 2
    return 2 * EARTH_RADIUS * asin(min(1.0, sqrt(half)))
