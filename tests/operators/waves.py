"""Table operators without an engine: waves of rows go in, events come out. The input is cut into waves in any way."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamwork import Event
from streamwork.components import Instance
from streamwork.components.collector import MAIN, TimerClock
from streamwork.components.columns import conforming, to_batch, to_structs
from streamwork.components.schema import fields_of
from streamwork.components.table_operator import NEVER, Rows, TableCollector, TableOperator
from streamwork.components.times import from_microseconds, microseconds
from streamwork.state.table import Table


class Arriving(NamedTuple):
    """An event of one partition of an input."""

    input: str
    partition: int
    event: Event


class Input(NamedTuple):
    """An input: the time field of its events, and where they go."""

    time: str
    partitions: int
    to: str
    port: str = MAIN


class Collector(TableCollector):
    """Keeps what is emitted, by channel."""

    def __init__(self, operator: TableOperator[Any, Any, Any], minimum: int, count: int | None) -> None:
        self.emitted: list[tuple[str, Event]] = []
        self._kinds = {MAIN: operator.types()[2], **operator.channels}
        self._minimum = minimum
        self._count = count

    @property
    def watermark(self):  # type: ignore[no-untyped-def]
        return None if self._minimum == NEVER else from_microseconds(self._minimum)

    def emit_batch(
        self, batch: pa.RecordBatch, channel: str = MAIN, *, rows: Any = None, times: Any = None, watermarks: Any = None
    ) -> None:
        given = rows if self._count is not None else times
        assert watermarks is None or len(watermarks) == batch.num_rows
        assert given is not None and len(given) == batch.num_rows and (np.diff(given) >= 0).all()
        assert self._count is None or not len(given) or 0 <= given[0] <= given[-1] < self._count
        conforming(self._kinds[channel], batch, "the operator")
        self.emitted += [(channel, event) for event in to_structs(self._kinds[channel], batch)]


class Waves:
    """Operators in the order of a chain, with the states that they keep and share."""

    def __init__(
        self,
        operators: dict[str, TableOperator[Any, Any, Any]],
        keys: dict[str, dict[str, Any]],
        inputs: dict[str, Input],
    ):
        """`keys`: operator -> name and type of its key fields."""
        self.operators = operators
        self.inputs = inputs
        self.states: dict[str, Any] = {}
        for name, operator in operators.items():
            record = operator.types()[1]
            self.states[name] = None if record is None else Table(keys[name], operator.sub_key, record)
            operator.setup_instance(Instance(0, 1))
        self.watermarks = {(name, p): NEVER for name, one in inputs.items() for p in range(one.partitions)}
        self.idle: set[tuple[str, int]] = set()  # partitions that do not hold the minimum back
        self.minimum = NEVER
        self.emitted: dict[tuple[str, str], list[Event]] = {}

    def wave(self, arriving: list[Arriving]) -> None:
        batches: dict[tuple[str, str], tuple[list[Event], list[int]]] = {}
        for name, partition, event in arriving:
            one = self.inputs[name]
            events, marks = batches.setdefault((one.to, one.port), ([], []))
            events.append(event)
            marks.append(self.watermarks[name, partition])
            at = microseconds(getattr(event, one.time))
            self.watermarks[name, partition] = max(self.watermarks[name, partition], at)
        active = [at for place, at in self.watermarks.items() if place not in self.idle]
        before, self.minimum = self.minimum, max(self.minimum, min(active))
        for name, operator in self.operators.items():
            for port in (MAIN, *getattr(operator, "ports", ())):
                if (name, port) in batches:
                    events, marks = batches[name, port]
                    batch = to_batch(type(events[0]), events, "the test")
                    rows = Rows(batch, np.array(marks, np.int64), port)
                    collector = Collector(operator, before, len(events))
                    operator.apply_rows(rows, self.states[name], self.states, collector)
                    self._take(name, collector)
            if self.minimum > before and TimerClock.EVENT in operator.clocks:
                collector = Collector(operator, before, None)
                operator.on_time(TimerClock.EVENT, self.minimum, self.states[name], self.states, collector)
                self._take(name, collector)

    def checkpoint(self) -> None:
        for name, operator in self.operators.items():
            collector = Collector(operator, self.minimum, None)
            operator.on_checkpoint(self.states[name], collector)
            self._take(name, collector)

    def restart(self) -> None:
        """Go on from a checkpoint behind an exchange: the watermark is unknown until the senders have sent it again."""
        self.checkpoint()
        self.minimum = NEVER
        for operator in self.operators.values():
            operator.setup_instance(Instance(0, 1))

    def run(self, arriving: list[Arriving], cuts: list[int]) -> Waves:
        """`cuts`: the sizes of waves, again and again."""
        start, number = 0, 0
        while start < len(arriving):
            size = cuts[number % len(cuts)] if cuts else len(arriving)
            self.wave(arriving[start : start + size])
            start, number = start + size, number + 1
        return self

    def of(self, name: str, channel: str = MAIN) -> list[Event]:
        return self.emitted.get((name, channel), [])

    def _take(self, name: str, collector: Collector) -> None:
        for channel, event in collector.emitted:
            self.emitted.setdefault((name, channel), []).append(event)


def key_of(event: type[Event], *names: str) -> dict[str, Any]:
    return {name: fields_of(event)[name] for name in names}
