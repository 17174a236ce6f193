"""How long a task of a gang rests between two rounds: a pure policy, of live mode.

A round costs more than an event in it: it asks the log, writes to sinks, and wakes isolated components, whose processes share the
machine. So under load, events gather for the next round.

    busy    the next round begins so much later than this one that rounds take a small share of the time, but at most
            `GATHER_SECONDS` later. A round that takes longer than that is followed by the next one at once
    idle    the wait doubles up to `LONGEST_WAIT`, and a message of an isolated component ends it
"""

from __future__ import annotations

from typing import NamedTuple

FIRST_WAIT = 0.000_2
LONGEST_WAIT = 0.001
"""Maximum seconds between two polls of the inputs while they are empty."""
GATHER_SECONDS = 0.003
"""Maximum seconds from one busy round to the next, unless the round itself takes longer."""
SHARE = 0.25
"""Of the time that busy rounds take, as far as `GATHER_SECONDS` allows."""
_SMOOTH = 0.1


class Rest(NamedTuple):
    seconds: float
    ends_early: bool  # True if a message ends it


class Pace:
    def __init__(self) -> None:
        self._wait = FIRST_WAIT
        self._works = 0.0  # seconds that a busy round takes, smoothed

    def rest(self, busy: bool, worked: float) -> Rest:
        """What follows a round that took so many seconds."""
        if busy:
            self._wait = FIRST_WAIT
            self._works += (worked - self._works) * _SMOOTH
            return Rest(max(0.0, min(GATHER_SECONDS, self._works / SHARE) - worked), False)
        wait, self._wait = self._wait, min(2 * self._wait, LONGEST_WAIT)
        return Rest(wait, True)
