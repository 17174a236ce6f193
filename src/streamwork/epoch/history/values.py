"""What a history holds of epochs: values that its writer and its readers share."""

from __future__ import annotations

from enum import Enum

import msgspec

from streamwork.delivery.counts import Counts


class Result(Enum):
    COMPLETED = "completed"
    ABANDONED = "abandoned"
    ROLLED_FORWARD = "rolled-forward"
    FAILED = "failed"  # an attempt raised an error; the driver ended

    @property
    def committed(self) -> bool:
        """True if every sink has it."""
        return self in (Result.COMPLETED, Result.ROLLED_FORWARD)


class Seconds(msgspec.Struct, frozen=True, kw_only=True):
    """How long each phase took; None for a phase that was not reached."""

    plan: float | None = None
    compute: float | None = None
    prepare: float | None = None
    commit: float | None = None
    complete: float | None = None
    prune: float | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one epoch."""

    epoch: int
    fence: int
    outcome: Result
    started: float  # seconds since 1970
    seconds: Seconds = Seconds()
    events: int = 0
    note: str = ""
    sinks: dict[str, float] = {}  # sink -> its seconds of the commit; written to histograms only, so never read back


class Count(msgspec.Struct, frozen=True):
    """What one instance of a component counted: in one epoch, or in all epochs of one outcome."""

    outcome: Result
    counts: Counts


class Sum(msgspec.Struct, frozen=True):
    """The number of epochs of one outcome, and the seconds of their phases."""

    outcome: Result
    epochs: int
    seconds: Seconds


class StateSize(msgspec.Struct, frozen=True, array_like=True):
    """The state of one component as of one checkpoint. Read as a row of a table, because there are many."""

    component: str
    at: float  # seconds since 1970
    keys: int  # 0 if its state is not keyed
    bytes: int  # of its files
