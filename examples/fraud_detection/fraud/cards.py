"""`Card`: where it is used, and for how much."""

from __future__ import annotations

import random
from typing import NamedTuple

from .proximity import distance


class City(NamedTuple):
    name: str
    latitude: float
    longitude: float


CITIES = (
    City("amsterdam", 52.37, 4.90),
    City("athens", 37.98, 23.73),
    City("berlin", 52.52, 13.41),
    City("boston", 42.36, -71.06),
    City("chicago", 41.88, -87.63),
    City("denver", 39.74, -104.99),
    City("dublin", 53.35, -6.26),
    City("helsinki", 60.17, 24.94),
    City("lagos", 6.52, 3.38),
    City("lima", -12.05, -77.04),
    City("lisbon", 38.72, -9.14),
    City("madrid", 40.42, -3.70),
    City("mumbai", 19.08, 72.88),
    City("nairobi", -1.29, 36.82),
    City("osaka", 34.69, 135.50),
    City("rome", 41.90, 12.50),
    City("santiago", -33.45, -70.67),
    City("seattle", 47.61, -122.33),
    City("sydney", -33.87, 151.21),
    City("toronto", 43.65, -79.38),
)
SHOPS = ("bakery", "books", "coffee", "fuel", "grocer", "pharmacy", "station", "tools")
TYPICAL = 30.0
"""The usual amount of most cards is around this."""
FAR = 500.0  # km


class Card(NamedTuple):
    id: str
    home: City
    usual: float  # amount

    @classmethod
    def some(cls, number: int, dice: random.Random) -> list[Card]:
        """So many cards."""
        return [
            cls(f"card-{index:06}", dice.choice(CITIES), round(TYPICAL * dice.lognormvariate(0, 0.6), 2))
            for index in range(number)
        ]

    def far_city(self, dice: random.Random) -> City:
        """A city that is far from home."""
        home = self.home
        far = [city for city in CITIES if distance(home.latitude, home.longitude, city.latitude, city.longitude) > FAR]
        return dice.choice(far)
