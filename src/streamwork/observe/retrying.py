"""Which components try an event again, as `status` shows it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from streamwork.delivery.retrying import marks
from streamwork.world import Clock, Disk


class RetriedEvent(msgspec.Struct, frozen=True):
    """An event that one instance of a component tries again; its checkpoint waits for it."""

    component: str
    instance: int
    checkpoint: int
    event: str
    error: str
    failures: int
    times: int | None  # how often it may be tried again; None: no limit
    within: float | None  # seconds after the first failure; None: no limit
    then: str
    for_seconds: float  # since the first failure
    next_seconds: float  # until the next try


def retried(disk: Disk, folder: Path, fence: int, done: int, clock: Clock) -> list[RetriedEvent]:
    """What the tasks of a driver try again, in epochs beyond the newest completed one."""
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
        if mark.epoch > done
    ]


def retried_lines(found: list[RetriedEvent]) -> list[str]:
    told = []
    for one in found:
        limits = [] if one.times is None else [f"{one.times} retries"]
        limits += [] if one.within is None else [f"{one.within:g} s"]
        end = f"after {' or '.join(limits)}: {one.then}" if limits else "without a limit"
        told.append(
            f"retrying: {one.component}[{one.instance}] has failed {one.failures} times in {one.for_seconds:.1f} s, "
            f"next try in {one.next_seconds:.1f} s ({end}); checkpoint {one.checkpoint} waits"
        )
        told.append(f"  {one.error}; event {one.event}")
    return told
