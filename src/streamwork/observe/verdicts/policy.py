"""`judge`: the verdicts about a job, the worst first. Pure."""

from __future__ import annotations

from streamwork.observe.verdicts.flow import falling_behind, keeping_up, thrashing, under_pressure
from streamwork.observe.verdicts.health import (
    growing_state,
    not_running,
    restart_loop,
    short_interval,
    skewed_key,
    slow_sink,
    stopped,
)
from streamwork.observe.verdicts.signs import Signs
from streamwork.observe.verdicts.verdict import Kind, Verdict

_WHILE_RUNNING = (
    restart_loop,
    stopped,
    thrashing,
    under_pressure,
    falling_behind,
    slow_sink,
    short_interval,
    skewed_key,
    growing_state,
)
_ORDER = list(Kind)
_BLOCKING = {Kind.RESTART_LOOP, Kind.STOPPED, Kind.THRASHING, Kind.UNDER_PRESSURE, Kind.FALLING_BEHIND}
"""While one of these holds, the job does not keep up."""


def judge(signs: Signs) -> tuple[Verdict, ...]:
    """At least one verdict."""
    if found := tuple(not_running(signs)):
        return found
    verdicts = [one for rule in _WHILE_RUNNING for one in rule(signs)]
    if not any(one.kind in _BLOCKING for one in verdicts):
        verdicts.append(keeping_up(signs))
    return tuple(sorted(verdicts, key=lambda one: _ORDER.index(one.kind)))
