"""Estimate the emission of each vehicle from the temperature of its zone, and compare it with the zone's limit.

The three streams have different rates: vehicles pass at any time, temperatures come every few minutes, limits every hour. A
vehicle meets the temperature and the limit that were valid when it passed. It waits until event time has passed it in all three
streams, so the result does not depend on which of them is read first.
"""

from datetime import datetime

from streamwork import Event, Job, JsonLines, SqliteSink


class Vehicle(Event):
    plate: str
    zone: str
    grams: float  # of carbon dioxide per kilometre, at 20 degrees
    at: datetime


class Temperature(Event):
    zone: str
    celsius: float
    at: datetime


class Zone(Event):
    zone: str
    limit: float
    at: datetime


class Passage(Event):  # fields of all three, found by name; None where a zone has no temperature or no limit
    plate: str
    zone: str
    at: datetime
    grams: float
    celsius: float | None
    limit: float | None


class Emission(Event):
    plate: str
    zone: str
    at: datetime
    grams: float
    above_limit: bool | None


def estimate(passage: Passage) -> Emission:
    cold = 0.0 if passage.celsius is None else max(0.0, 20.0 - passage.celsius)
    grams = round(passage.grams * (1 + cold / 100), 1)  # one per cent more for each degree
    above = None if passage.limit is None else grams > passage.limit
    return Emission(passage.plate, passage.zone, passage.at, grams, above)


job = Job("emission")
vehicles = job.source(JsonLines("vehicles.jsonl", Vehicle), id="vehicles", time="at")
temperatures = job.source(JsonLines("temperatures.jsonl", Temperature), id="temperature-readings", time="at")
zones = job.source(JsonLines("zones.jsonl", Zone), id="zone-limits", time="at")
passages = vehicles.join(
    temperatures.table(key="zone", id="temperatures"),
    zones.table(key="zone", id="zones"),
    key="zone",
    how="left",
    id="emission",
    to=Passage,
)
passages.map(estimate).sink(SqliteSink("emissions.db", "emissions"), id="emissions")
