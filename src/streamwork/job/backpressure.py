"""Backpressure: what happens when an instance lags, so that the channel to it is full.

sources    the sources before it stop; what they have sent goes on, up to twice the bound of the channel
upstream   the instance that sends to it stops; then that one's own channels fill, and so on up to the sources
drop       nothing stops: new events for it are dropped and counted, until it has caught up (at-most-once)
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from streamwork.errors import WrongUse
from streamwork.job.semantics import Promise

BackpressureName = Literal["sources", "upstream", "drop"]


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


def check_backpressure(promise: Promise, name: str, policy: Backpressure | None) -> None:
    """Refuse to drop events where the semantics do not allow it. `name` is that of a component or the job."""
    if policy is Backpressure.DROP and not promise.at_most_once:
        raise WrongUse(
            "SW-JOB-SEMANTICS",
            f"{promise} cannot hold: {name} has backpressure='drop', so events are lost whenever it lags",
            "use backpressure='sources' or 'upstream', or choose semantics='at-most-once'",
        )
