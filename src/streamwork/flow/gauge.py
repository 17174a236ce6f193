"""A gauge: how much waits in a bounded channel. Two thresholds for each level, so that pressure does not flap.

    ROOM  --(at the bound)-->           FULL  --(at twice the bound)-->  OVER
    ROOM  <--(at half the bound)--      FULL  <--(at the bound)--        OVER

The bound holds for events and for bytes: a level rises when either has reached it, and falls when both are below. Of events, fewer
may wait if the receiver takes long for them (`flow.drain`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from streamwork.flow.drain import Drain
from streamwork.job.backpressure import Backpressure

MOST_EPISODES = 20


class Bound(NamedTuple):
    """The most that may wait in a channel; None: no limit."""

    events: int | None = None
    bytes: int | None = None

    def of(self, buffer: int | None) -> Bound:
        """This bound, with another number of events if there is one."""
        return self if buffer is None else self._replace(events=buffer)


CHANNEL_BOUND = Bound(65_536, 16 << 20)
"""Of each channel between two instances in `local` and `live`."""


class Level(IntEnum):
    ROOM = 0
    FULL = 1
    OVER = 2


class Gauge:
    """Has one writer. Other threads may read its numbers."""

    def __init__(
        self, bound: Bound, policy: Backpressure, now: Callable[[], float], drain: Drain | None = None
    ) -> None:
        """`now` gives seconds since 1970, and is called when the level changes; with `drain`, at each call."""
        self.bound = bound
        self.policy = policy
        self.events = 0  # that wait
        self.bytes = 0
        self.sent = 0  # events for this channel, dropped ones included
        self.dropped = 0
        self.since: float | None = None  # since when it is full
        self.episodes: deque[tuple[float, float]] = deque(
            maxlen=MOST_EPISODES
        )  # the times at which it was full, that are over
        self.full_seconds = 0.0  # in these
        self._level = Level.ROOM
        self._now = now
        self._drain = drain

    @property
    def limit(self) -> Bound:
        """The bound as it is now."""
        events, size = self.bound
        return self.bound if self._drain is None or events is None else Bound(min(events, self._drain.events), size)

    @property
    def is_full(self) -> bool:
        return self._level is not Level.ROOM

    @property
    def stops_sender(self) -> bool:
        """True if the instance that sends processes no more events. Where the sources are stopped instead, what they have sent
        still passes, up to twice the bound.
        """
        if self.policy is Backpressure.DROP:
            return False
        return self._level >= (Level.OVER if self.policy is Backpressure.SOURCES else Level.FULL)

    @property
    def stops_sources(self) -> bool:
        return self.policy is Backpressure.SOURCES and self._level is not Level.ROOM

    @property
    def drops(self) -> bool:
        """True if new events are dropped."""
        return self.policy is Backpressure.DROP and self._level is not Level.ROOM

    def add(self, events: int, size: int) -> None:
        """So much has been sent."""
        self.events += events
        self.bytes += size
        if self._drain is not None and self.events > 0:
            self._drain.waits(self._now())
        while self._level < Level.OVER and self._reaches(self._level + 1):
            self._change(Level(self._level + 1))
            if self._drain is not None:
                self._drain.fills()

    def take(self, events: int, size: int) -> None:
        """So much has been received."""
        self.events -= events
        self.bytes -= size
        if self._drain is not None:
            self._drain.took(events, self.events, self._now())
        while self._level > Level.ROOM and self._is_below(self._level):
            self._change(Level(self._level - 1))

    def _reaches(self, bounds: int) -> bool:
        events, size = self.limit
        return (events is not None and self.events >= bounds * events) or (
            size is not None and self.bytes >= bounds * size
        )

    def _is_below(self, level: Level) -> bool:
        """FULL ends at half the bound, OVER at the bound."""
        events, size = self.limit
        part = 0.5 if level is Level.FULL else 1.0
        return (events is None or self.events <= part * events) and (size is None or self.bytes <= part * size)

    def _change(self, level: Level) -> None:
        if self._level is Level.ROOM:
            self.since = self._now()
        elif level is Level.ROOM and self.since is not None:
            ended = self._now()
            self.full_seconds += ended - self.since
            self.episodes.append((self.since, ended))
            self.since = None
        self._level = level
