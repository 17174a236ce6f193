"""`Outcome`: the result of a run."""

from __future__ import annotations

import msgspec

from streamwork.epoch import Started
from streamwork.epoch.in_doubt import InDoubt

NOT_STARTED = "stopped before it had started"


class Outcome(msgspec.Struct, frozen=True):
    """The result of a run."""

    job: str
    root: str
    mode: str
    started: str
    fence: int
    checkpoint: int
    checkpoints: int
    events: int
    dropped: int
    seconds: float
    restarts: int = 0
    dead_letters: int = 0
    retried: int = 0  # retries in place
    late: int = 0  # events that came too late for a window or a join
    in_doubt: tuple[InDoubt, ...] = ()  # under at-most-once: input of interrupted epochs that this run found first


def how_started(started: Started | None) -> str:
    if started is None:
        return NOT_STARTED
    return "new" if started.new else f"resumed at checkpoint {started.resumed_at}"
