"""Report each machine that has sent no heartbeat for ten minutes, once per silence, by event-time timers."""

from datetime import datetime, timedelta

from streamwork import Event, Job, JsonLines, KeyedCollector, KeyedOperator, Record, SqliteSink

SILENCE = timedelta(minutes=10)


class Heartbeat(Event):
    machine: str
    at: datetime


class Silent(Event):
    machine: str
    since: datetime


class LastSeen(Record):
    at: datetime | None = None


class Watch(KeyedOperator[Heartbeat, LastSeen, Silent]):
    def apply(self, event: Heartbeat, state: LastSeen, collector: KeyedCollector) -> None:
        state.at = event.at if state.at is None else max(state.at, event.at)
        collector.set_timer(event.at + SILENCE)

    def on_timer(self, key: str, at: datetime, state: LastSeen, collector: KeyedCollector) -> None:
        if state.at is not None and at == state.at + SILENCE:  # else a later heartbeat has set a later timer
            collector.emit(Silent(key, state.at))


job = Job("inactivity-alert")
heartbeats = job.source(JsonLines("heartbeats.jsonl", Heartbeat), id="heartbeats", time="at")
alerts = heartbeats.apply(Watch(), key="machine", id="watch")
alerts.sink(SqliteSink("alerts.db", "silent"), id="alerts")
