"""Backpressure: what happens when an instance lags, so that the channel to it is full.

sources    the sources before it stop; what they have sent goes on, up to twice the bound of the channel
upstream   the instance that sends to it stops; then that one's own channels fill, and so on up to the sources
drop       nothing stops: new events for it are dropped and counted, until it has caught up (at-most-once)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from streamwork.errors import WrongUse
from streamwork.job.semantics import Promise

BackpressureName = Literal["sources", "upstream", "drop"]


@dataclass(frozen=True)
class Lag:
    """What a component says about the case that it lags. None: as the job."""

    backpressure: BackpressureName | None = None
    buffer: int | None = None

    @classmethod
    def of(cls, backpressure: BackpressureName | None, buffer: int | None) -> Lag:
        """Checked."""
        if backpressure is not None:
            known_backpressure(backpressure)
        return cls(backpressure, checked_buffer(buffer))


JOBS = Lag()
"""What the job says."""


class Backpressure(Enum):
    SOURCES = "sources"
    UPSTREAM = "upstream"
    DROP = "drop"


def known_backpressure(name: str) -> Backpressure:
    try:
        return Backpressure(name)
    except ValueError:
        known = ", ".join(repr(one.value) for one in Backpressure)
        raise WrongUse("SW-JOB-SETTING", f"backpressure={name!r}", f"use one of: {known}") from None


def checked_buffer(events: int | None) -> int | None:
    if events is not None and (isinstance(events, bool) or not isinstance(events, int) or events < 1):
        raise WrongUse("SW-JOB-SETTING", f"buffer={events!r}", "use a whole number of events from 1 on")
    return events


def check_backpressure(promise: Promise, name: str, policy: Backpressure | None) -> None:
    """Refuse to drop events where the semantics do not allow it. `name` is that of a component or the job."""
    if policy is Backpressure.DROP and not promise.at_most_once:
        raise WrongUse(
            "SW-JOB-SEMANTICS",
            f"{promise} cannot hold: {name} has backpressure='drop', so events are lost whenever it lags",
            "use backpressure='sources' or 'upstream', or choose semantics='at-most-once'",
        )
