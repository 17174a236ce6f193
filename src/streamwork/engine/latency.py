"""Latency in live mode: from the turn in which a source has read an event until what was made from it is at a sink.

`Stopwatch`   of a chain: when the events of the turn under way were read. It goes with what the chain sends (`flow.channel.Data`)
`SinkMeter`   of a sink: records at each write how long it took since then
`Recent`      the last seconds of a meter, and everything since its task began, for the vital signs
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from streamwork.engine.histogram import Histogram, Tally, merged

WINDOW = 10.0
"""About so many seconds are recent."""
SLOT = 1.0
"""The recent seconds are counted in slots of this length."""


class Stopwatch:
    __slots__ = ("began", "now")

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` gives seconds since 1970: other processes may have read the events."""
        self.now = now
        self.began = now()

    def start(self, began: float | None = None) -> None:
        """A turn begins, with events that were read at `began`; by default now."""
        self.began = self.now() if began is None else began


class SinkMeter:
    """The thread of the sink calls `wrote`. Another one may read and `cut`."""

    __slots__ = ("_watch", "sink", "staged", "tally")

    def __init__(self, sink: str, staged: bool, watch: Stopwatch) -> None:
        """`staged`: what is written here becomes visible with its checkpoint."""
        self.sink = sink
        self.staged = staged
        self.tally = Tally()
        self._watch = watch

    def wrote(self, events: int) -> None:
        """So many events of this turn are at the sink."""
        watch = self._watch
        took = watch.now() - watch.began
        # The clock may have been set back, or that of another machine is ahead.
        self.tally.add(took if took > 0 else 0.0, events)

    def cut(self) -> Tally:
        """The tally until now; what comes goes into another one. The writer may still be adding to this one: it is to be read
        again later.
        """
        before, self.tally = self.tally, Tally()
        return before


class Recent:
    """Has one user, which calls `read` about once a second."""

    def __init__(self, meter: SinkMeter, now: float) -> None:
        """`now` is monotonic."""
        self.meter = meter
        self._slots: deque[tuple[float, Tally]] = deque()  # when each began; the oldest first
        self._began = now  # the slot under way
        self._older = Histogram()  # of the slots before these

    def read(self, now: float) -> tuple[float, Histogram, Histogram]:
        """The length of the recent time in seconds, its histogram, and that of all the time."""
        while self._slots and self._slots[0][0] < now - WINDOW:
            self._older = self._older.merge(self._slots.popleft()[1].value())
        began = self._slots[0][0] if self._slots else self._began
        recent = merged(tally.value() for tally in (*(tally for _, tally in self._slots), self.meter.tally))
        if now - self._began >= SLOT:
            self._slots.append((self._began, self.meter.cut()))
            self._began = now
        return now - began, recent, self._older.merge(recent)
