"""`State`: what is shown at one moment. `Show` is what shows it: `screen` on a terminal, `lines` elsewhere."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from streamwork.cli.network.incident import Incident
from streamwork.cli.network.reading import Snapshot

LIMIT_MS = 20.0
"""Within which a transaction should be decided."""
HISTORY = 40
"""Rates that are kept."""


class Note(NamedTuple):
    """An event of the demo."""

    at: float
    text: str
    good: bool | None = None  # None: neither


class State(NamedTuple):
    phase: str
    traffic: float  # seconds since the first transaction
    seconds: float | None  # of traffic; None: endless
    now: Snapshot
    incidents: tuple[Incident, ...]
    decided: tuple[float, ...]  # per second, oldest first
    counted: tuple[float, ...]


class Show(Protocol):
    def note(self, note: Note) -> None: ...

    def update(self, state: State) -> None: ...

    def close(self) -> None: ...


class Rates:
    """Events per second, from one snapshot to the next."""

    def __init__(self) -> None:
        self.decided: deque[float] = deque(maxlen=HISTORY)
        self.counted: deque[float] = deque(maxlen=HISTORY)
        self._last: Snapshot | None = None

    def add(self, now: Snapshot) -> None:
        last, self._last = self._last, now
        if last is not None and now.at > last.at:
            seconds = now.at - last.at
            self.decided.append((now.decisions - last.decisions) / seconds)
            self.counted.append((now.totals.transactions - last.totals.transactions) / seconds)


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    whole = max(0, int(seconds))
    return f"{whole // 60:02}:{whole % 60:02}"


def milliseconds(value: float | None) -> str:
    """A latency; a dash if there is none."""
    return "-" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def recovered_text(incident: Incident) -> str:
    """The recovery, in a sentence."""
    what = "" if incident.repeated is None else _counted(incident.counted, incident.repeated)
    return f"{incident.what.partition(',')[0]}: back after {incident.recovered:.1f} s{what}"


def _counted(counted: int, repeated: int) -> str:
    return f"; {counted:,} counted, " + ("each once" if not repeated else f"{repeated:,} of them REPEATED")
