"""Two kinds of alert from one stream: a threshold, which needs no state, and a jump above the sensor's running average.

Both write to one table: `union` merges the two streams before the sink.
"""

from streamwork import Event, Job, JsonLines, KeyedCollector, KeyedOperator, Record, SqliteSink, field

HOT = 90.0
JUMP = 20.0


class Reading(Event):
    sensor: str
    celsius: float


class Alert(Event):
    sensor: str
    celsius: float
    why: str


class Average(Record):
    count: int = 0
    total: float = 0.0


def hot(reading: Reading) -> Alert:
    return Alert(reading.sensor, reading.celsius, "hot")


class Jumps(KeyedOperator[Reading, Average, Alert]):
    def apply(self, event: Reading, state: Average, collector: KeyedCollector) -> None:
        if state.count and event.celsius > state.total / state.count + JUMP:
            collector.emit(Alert(event.sensor, event.celsius, "jump"))
        state.count += 1
        state.total += event.celsius


job = Job("sensor-alerts")
readings = job.source(JsonLines("readings.jsonl", Reading), id="readings")
too_hot = readings.where(field("celsius") > HOT).map(hot)
jumps = readings.apply(Jumps(), key="sensor", id="jumps")
too_hot.union(jumps).sink(SqliteSink("sensors.db", "alerts"), id="alerts")
