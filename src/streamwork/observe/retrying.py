"""`RetriedEvent`: an event that a component retries in place."""

from __future__ import annotations

from pathlib import Path

import msgspec

from streamwork.delivery.retrying import marks
from streamwork.world import Clock, Disk


class RetriedEvent(msgspec.Struct, frozen=True):
    """An event that one instance of a component retries; its checkpoint waits for it."""

    component: str
    instance: int
    checkpoint: int
    event: str
    error: str
    failures: int
    times: int | None  # maximum number of retries; None: no limit
    within: float | None  # seconds after the first failure; None: no limit
    then: str
    for_seconds: float  # since the first failure
    next_seconds: float  # until the next attempt


def read_retrying(disk: Disk, folder: Path, fence: int, completed: int, clock: Clock) -> list[RetriedEvent]:
    """The events that a driver's tasks retry, in epochs beyond the newest completed one."""
    now = clock.now()
    return [
        RetriedEvent(
            mark.component,
            mark.instance,
            mark.epoch,
            mark.event,
            mark.error,
            mark.failures,
            mark.times,
            mark.within,
            mark.then,
            round(max(0.0, now - mark.since), 1),
            round(max(0.0, mark.due - now), 1),
        )
        for mark in marks(disk, folder, fence)
        if mark.epoch > completed
    ]
