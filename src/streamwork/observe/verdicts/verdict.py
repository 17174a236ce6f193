"""`Verdict`: one finding about a job."""

from __future__ import annotations

from enum import Enum

import msgspec


class Kind(Enum):
    """The kinds of findings, the worst first."""

    NOT_RUNNING = "not running"
    RESTART_LOOP = "restart loop"
    STOPPED = "stopped"
    THRASHING = "thrashing"
    UNDER_PRESSURE = "under pressure"
    FALLING_BEHIND = "falling behind"
    SLOW_SINK = "slow sink"
    SHORT_INTERVAL = "short interval"
    SKEWED_KEY = "skewed key"
    GROWING_STATE = "growing state"
    KEEPING_UP = "keeping up"

    @property
    def is_fine(self) -> bool:
        return self is Kind.KEEPING_UP


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One finding: what is so, since when, by how much, and what to do about it."""

    kind: Kind
    text: str  # one or two sentences
    since: float | None = None  # seconds since 1970
    component: str = ""  # that it is about, or the source that is behind
    instance: int | None = None
    behind: int | None = None  # input that is not processed yet, in `unit`
    behind_seconds: float | None = None  # the same, as seconds of input at its present rate
    unit: str = ""
    caught_up_at: float | None = None  # at the present rates, in seconds since 1970; None: never, or not applicable
    stops: tuple[str, ...] = ()  # the components that have to wait
    details: tuple[str, ...] = ()  # the last event, the stack of a task
    advice: str = ""
    command: str = ""
