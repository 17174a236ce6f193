"""The results in Kafka topics, as a consumer of committed records gets them: their last counts, and when they became right."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import msgspec

from streamwork.bench.ysb.oracle import Counts
from streamwork.bench.ysb.running import LOOK_SECONDS
from streamwork.components.times import microseconds
from streamwork.errors import JobFailed

PATIENCE = 60.0


class Row(msgspec.Struct, frozen=True):
    """A result. A window's start is text, or a number of milliseconds."""

    campaign: int
    window_start: str | int
    views: int
    diff: int = 1  # -1: an older count is withdrawn

    @property
    def window(self) -> tuple[int, int]:
        if isinstance(self.window_start, int):
            return self.campaign, self.window_start * 1000
        return self.campaign, microseconds(datetime.fromisoformat(self.window_start))


class Arrivals:
    """Reads topics from their beginning, until it is closed, in a thread."""

    def __init__(self, servers: str, topics: Iterable[str], wanted: Counts) -> None:
        self.right: dict[tuple[int, int], float] = {}
        """When the right count of a window was first read, in seconds since 1970."""
        self.last: dict[str, Counts] = {topic: {} for topic in topics}
        """The last count of each window, by topic."""
        self.rows = 0
        self._wanted = wanted
        self._decoder = msgspec.json.Decoder(Row)
        self._consumer = _consumer(servers, list(self.last))
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="arrivals", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while not self._closing.is_set():
                if (message := self._consumer.poll(LOOK_SECONDS)) is None:
                    continue
                now = time.time()
                if message.error() is not None:
                    raise JobFailed("SW-BENCH-FAILED", f"reading results: {message.error()}", "check the broker")
                if message.value() is None:
                    continue
                row = self._decoder.decode(message.value())
                if row.diff < 0:
                    continue
                self.rows += 1
                self.last[message.topic()][row.window] = row.views
                if self._wanted.get(row.window) == row.views:
                    self.right.setdefault(row.window, now)
        except BaseException as error:
            self._error = error

    def wait(self, windows: Iterable[tuple[int, int]], seconds: float, alive: Callable[[], None]) -> None:
        """Until all of these windows have been right. `alive` raises if the job has ended; raises if the time is over."""
        missing, until = set(windows), time.monotonic() + seconds
        while missing := {one for one in missing if one not in self.right}:
            if self._error is not None:
                raise self._error
            alive()
            if time.monotonic() > until:
                one = min(missing)
                raise JobFailed(
                    "SW-BENCH-FAILED",
                    f"{len(missing)} windows are not right after {seconds:.0f} s; campaign {one[0]}, window {one[1]}: "
                    f"{self._wanted[one]} views are wanted, read were "
                    f"{[counts.get(one) for counts in self.last.values()]}, of {self.rows} rows",
                    "the system is too slow here, or its results are wrong",
                )
            time.sleep(LOOK_SECONDS)

    def wait_for(self, topic: str, windows: int, seconds: float) -> None:
        """Until a topic has so many windows, or the time is over."""
        until = time.monotonic() + seconds
        while len(self.last[topic]) < windows and time.monotonic() < until and self._error is None:
            time.sleep(LOOK_SECONDS)

    def close(self) -> None:
        self._closing.set()
        self._thread.join(PATIENCE)
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _consumer(servers: str, topics: list[str]) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    settings: Mapping[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "results",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 10,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    places = []
    for topic in topics:
        known = consumer.list_topics(topic, timeout=PATIENCE).topics[topic]
        places += [TopicPartition(topic, number, 0) for number in known.partitions]
    consumer.assign(places)
    return consumer
