"""`JobStatus`: everything that is known about a job, read from its files.

One model for all: ``status`` prints it as text or JSON, and `observe.metrics` turns it into metrics.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from streamwork.components import Position
from streamwork.engine.vitals import EdgeVital, InstanceVital
from streamwork.epoch.fences import Fences, Holder, Life
from streamwork.epoch.history.durations import Durations
from streamwork.epoch.history.lag import Lag, lags
from streamwork.epoch.history.reading import durations, in_doubt, input_ends, outcomes, rows
from streamwork.epoch.history.values import Result, Seconds
from streamwork.epoch.in_doubt import InDoubt
from streamwork.epoch.job_folder import open_store
from streamwork.epoch.store import Store
from streamwork.job.params import Value
from streamwork.observe.counts import ComponentCounts, read_counts
from streamwork.observe.dead_letters import LetterCounts, count_letters
from streamwork.observe.facts import (
    ComponentState,
    EventTime,
    Offsets,
    read_event_times,
    read_offsets,
    read_states,
)
from streamwork.observe.latency import Latency, read_latency
from streamwork.observe.retrying import RetriedEvent, read_retrying
from streamwork.observe.verdicts import Verdict, judge
from streamwork.observe.verdicts.flow import paces
from streamwork.observe.verdicts.reading import read_signs
from streamwork.observe.waiting import WaitingEvents, read_waiting
from streamwork.run.standbys import Waiting, standbys
from streamwork.world import Clock, RealProcesses

WATCH_SECONDS = 5.0
"""How long a holder on another machine is watched for a sign of life, unless its lease says otherwise."""
RECENT = 100
"""The number of epochs in which abandoned ones are counted."""


class EpochCounts(msgspec.Struct, frozen=True):
    """The epochs with one outcome since the history began, and the sum of their seconds."""

    epochs: int
    seconds: Seconds


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a job."""

    job: str
    root: str
    running: bool | None  # None: unknown; the holder is on another machine and silent
    restarting: bool
    holder: Holder | None
    params: dict[str, Value]  # of the run that has started last
    standbys: list[Waiting]  # that wait to take the job over
    checkpoint: int | None  # the newest completed one
    age_seconds: float | None
    completed_at: float | None  # seconds since 1970
    position: Position
    lag: dict[str, Lag]  # by source with offsets: input that no completed checkpoint has read
    steps: Seconds | None  # of the last epoch in the history
    prepared: list[int]  # not completed yet
    quarantined: dict[int, int]  # epoch -> the fence whose start set it aside
    abandoned: int  # of the last hundred epochs
    epochs: dict[str, EpochCounts]  # by outcome
    counts: dict[str, ComponentCounts]  # by component
    retrying: list[RetriedEvent]  # what the checkpoint in progress waits for
    waiting: WaitingEvents
    dead_letters: LetterCounts
    verdicts: tuple[Verdict, ...]  # what all this means, the worst first
    edges: tuple[EdgeVital, ...]  # bounded channels between instances
    instances: tuple[InstanceVital, ...]
    latency: Latency | None  # to the sinks, in live mode; None: not measured, or no task runs
    in_doubt: list[InDoubt]  # under at-most-once: input of interrupted epochs
    mode: str  # of the last run; "" if that is unknown
    semantics: str  # of the last start
    checkpoint_every: float | None  # seconds, of the last run
    seconds_behind: dict[str, float | None]  # by source: its lag as seconds of input; None if no input comes
    offsets: tuple[Offsets, ...]
    event_times: tuple[EventTime, ...]
    states: dict[str, ComponentState]  # by component
    durations: tuple[Durations, ...]  # of the steps and of the sinks' parts of the commit


def read_status(root: Path, job: str, clock: Clock, watch: bool = True) -> JobStatus:
    """The status of a job. With `watch`, a holder on another machine is watched for some seconds."""
    store = open_store(root, job)
    fences = Fences(store.disk, store.folder, clock, RealProcesses())
    newest = fences.newest()
    lease = newest.lease / 2 if newest is not None and newest.lease else WATCH_SECONDS
    holder = fences.holder(watch=lease) if watch else fences.holder()
    running = is_running(holder)
    stored = store.stored()
    done = next((one for one in stored if one.completed), None)
    at = None if done is None else done.manifest
    position = Position() if at is None else at.positions
    completed_at = None if done is None else written_at(store, done.epoch)
    history = store.folder / "history.sqlite"
    recent = rows(history, RECENT)
    ends = input_ends(history)
    promise = fences.starts.promise()
    signs = read_signs(store, root, job, clock, holder, running, at)
    return JobStatus(
        job=job,
        root=str(root),
        running=running,
        restarting=holder is not None and holder.restarting and holder.life is Life.RUNNING,
        holder=holder,
        params=fences.starts.params(),
        standbys=standbys(store.disk, store.folder, clock, RealProcesses()),
        checkpoint=None if done is None else done.epoch,
        age_seconds=None if completed_at is None else round(clock.now() - completed_at, 1),
        completed_at=completed_at,
        position=position,
        lag=dict(lags(ends, position)),
        steps=recent[0].seconds if recent else None,
        prepared=sorted(one.epoch for one in stored if not one.completed),
        quarantined=store.quarantined(),
        abandoned=sum(row.outcome in (Result.ABANDONED, Result.FAILED) for row in recent),
        epochs={one.outcome.value: EpochCounts(one.epochs, one.seconds) for one in outcomes(history)},
        counts=read_counts(history, recent[0].epoch if recent else 0),
        retrying=read_retrying(store.disk, store.folder, holder.fence, done.epoch if done else 0, clock)
        if holder is not None and running is not False
        else [],
        waiting=read_waiting(store, clock.now()),
        dead_letters=count_letters(store),
        verdicts=judge(signs),
        edges=tuple(edge for task in signs.tasks for edge in task.edges),
        instances=tuple(one for task in signs.tasks for one in task.instances),
        latency=read_latency(signs.tasks),
        in_doubt=in_doubt(history),
        mode=signs.run.mode,
        semantics="" if promise is None else str(promise),
        checkpoint_every=signs.run.checkpoint_every if signs.run.fence else None,
        seconds_behind={source: pace.seconds_behind for source, pace in paces(signs).items()},
        offsets=read_offsets(ends, at),
        event_times=read_event_times(at),
        states=read_states(at),
        durations=durations(history),
    )


def is_running(holder: Holder | None) -> bool | None:
    """None: not known; the holder is on another machine, and silent."""
    if holder is None:
        return False
    return {Life.RUNNING: True, Life.ENDED: False, Life.GONE: False, Life.UNKNOWN: None}[holder.life]


def written_at(store: Store, epoch: int) -> float | None:
    """None if the checkpoint has been pruned meanwhile."""
    try:
        return store.written_at(epoch)
    except (OSError, StopIteration):
        return None
