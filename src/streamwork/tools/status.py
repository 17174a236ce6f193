"""``streamwork status`` and ``streamwork stop``: who drives a job, how far it is, and asking it to end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from streamwork.components import Position
from streamwork.epoch.control import GONE, Control, Kind
from streamwork.epoch.fences import Fences, Holder, Life, moment
from streamwork.epoch.history import Result, Seconds, rows
from streamwork.errors import JobFailed
from streamwork.tools.checkpoints import open_store
from streamwork.world import Clock, RealProcesses

POLL_SECONDS = 0.05
TELL_SECONDS = 5.0
GRACE_SECONDS = 5.0
"""A driver says that it has ended a moment before it answers: so long that may take."""
RESTART_SECONDS = 0.5
"""A driver that fails says that it has ended a moment before its supervisor says that it will start again."""
WATCH_SECONDS = 5.0
"""How long a holder on another machine is watched for a sign of life, unless its own lease says otherwise."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    root: str
    running: bool | None  # None: it cannot be told from here
    restarting: bool
    holder: Holder | None
    checkpoint: int | None  # the newest completed one
    age_seconds: float | None
    position: Position
    steps: Seconds | None  # of the last epoch that the history knows
    prepared: list[int]  # not completed yet
    quarantined: dict[int, int]  # epoch -> the fence whose start set it aside
    abandoned: int  # of the last hundred epochs


def look(root: Path, job: str, clock: Clock) -> Status:
    """What is known of a job, from its files alone. A holder on another machine is watched for a few seconds."""
    store = open_store(root, job)
    fences = Fences(store.disk, store.folder, clock, RealProcesses())
    newest = fences.newest()
    holder = fences.holder(watch=newest.lease / 2 if newest is not None and newest.lease else WATCH_SECONDS)
    stored = store.stored()
    done = next((one for one in stored if one.completed), None)
    recent = rows(store.folder / "history.sqlite", 100)
    return Status(
        job=job,
        root=str(root),
        running=_running(holder),
        restarting=holder is not None and holder.restarting and holder.life is Life.RUNNING,
        holder=holder,
        checkpoint=None if done is None else done.epoch,
        age_seconds=None if done is None else round(clock.now() - store.written_at(done.epoch), 1),
        position={} if done is None or done.manifest is None else done.manifest.positions,
        steps=recent[0].seconds if recent else None,
        prepared=sorted(one.epoch for one in stored if not one.completed),
        quarantined=store.quarantined(),
        abandoned=sum(row.outcome is Result.ABANDONED for row in recent),
    )


def lines(status: Status) -> list[str]:
    """A few plain lines."""
    told = [f"job {status.job}, root {status.root}", who(status.holder)]
    if status.checkpoint is not None:
        told.append(f"checkpoint {status.checkpoint}, completed {status.age_seconds:,.1f} s ago")
    if status.position:
        told.append("position: " + ", ".join(f"{name} at {at:,}" for name, at in sorted(status.position.items())))
    if status.steps is not None:
        told.append(f"last steps: {durations(status.steps)}")
    if status.prepared:
        told.append("prepared, not completed yet: " + ", ".join(map(str, status.prepared)))
    if status.abandoned:
        told.append(f"abandoned: {status.abandoned} of the last hundred epochs")
    for epoch, fence in sorted(status.quarantined.items()):
        told.append(f"quarantined: checkpoint {epoch}, by the start of fence {fence} (see quarantine/{fence})")
    return told


def who(holder: Holder | None) -> str:
    if holder is None:
        return "not running: it was never started"
    process, fence = holder.process, f"fence {holder.fence}, since {moment(holder.since)}"
    match holder.life:
        case Life.RUNNING if holder.restarting:
            return f"starting again after a failure: {process} ({fence})"
        case Life.RUNNING:
            return f"running: {process} ({fence})"
        case Life.ENDED:
            return f"not running: {process} has ended ({fence})"
        case Life.GONE:
            return f"not running: {process} is gone without having ended ({fence}); start the job again"
        case Life.UNKNOWN:
            return f"perhaps running: {process} ({fence}) is on another machine, and gave no sign of life"


def durations(seconds: Seconds) -> str:
    known = {name: value for name, value in msgspec.structs.asdict(seconds).items() if value is not None}
    return ", ".join(f"{name} {value * 1000:,.0f} ms" for name, value in known.items()) or "none"


class Stopped(msgspec.Struct, frozen=True):
    job: str
    root: str
    was_running: bool
    checkpoint: int | None
    text: str


def stop(root: Path, job: str, timeout: float, clock: Clock, tell: Callable[[str], object]) -> Stopped:
    """Ask the driver to end after the epoch under way, and wait until it has. Raises SW-STOP-TIMEOUT.

    A driver that fails meanwhile may be followed by another one of the same run: then that one is asked.
    """
    store, processes = open_store(root, job), RealProcesses()
    fences = Fences(store.disk, store.folder, clock, processes)
    control = Control(store.disk, store.folder, clock)
    until, next_word, asked, fence = clock.monotonic() + timeout, 0.0, "", 0
    ended_at: float | None = None
    while True:
        # Whether it is over is looked at before the answer, so that an answer given in between is not missed.
        holder = fences.holder()
        over = holder is None or holder.life is Life.GONE
        if holder is not None and holder.life is Life.ENDED:
            ended_at = clock.monotonic() if ended_at is None else ended_at
            patience = ended_at + (GRACE_SECONDS if asked else RESTART_SECONDS)
            over = processes.gone(holder.process) or clock.monotonic() > patience
        answer = control.answer(asked) if asked else None
        if answer is not None and answer.text != GONE:
            return Stopped(job, str(root), True, answer.checkpoint, answer.text)
        if over or holder is None:
            if asked:
                control.withdraw(asked)
            ended = "was killed" if holder is not None and holder.life is Life.GONE else "has ended by itself"
            newest = max(store.completed(), default=None)
            return Stopped(job, str(root), bool(asked), newest, ended if asked else "not running")
        if holder.life is Life.ENDED:
            clock.sleep(POLL_SECONDS)
            continue
        ended_at = None
        if holder.fence != fence or answer is not None:
            if asked:
                control.withdraw(asked)
            asked, fence = control.ask(Kind.STOP, holder.fence), holder.fence
        now = clock.monotonic()
        if now >= until:
            raise JobFailed(
                "SW-STOP-TIMEOUT",
                f"{holder.process} has not stopped within {timeout:g} s",
                "the request stands: it will stop when the epoch under way is completed. If it must end now, kill the "
                "process (kill -9): nothing is lost, the next start resumes at the last checkpoint",
            )
        if now >= next_word:
            tell(f"asked {holder.process} to stop; it completes the epoch under way (waiting {until - now:.0f} s more)")
            next_word = now + TELL_SECONDS
        clock.sleep(POLL_SECONDS)


def _running(holder: Holder | None) -> bool | None:
    if holder is None:
        return False
    return {Life.RUNNING: True, Life.ENDED: False, Life.GONE: False, Life.UNKNOWN: None}[holder.life]
