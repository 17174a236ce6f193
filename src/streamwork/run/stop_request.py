"""``streamwork stop``: asks the driver of a job and its standbys to stop, and waits until they have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from streamwork.delivery.retrying import Mark, marks
from streamwork.epoch.control import GONE, Control, Kind
from streamwork.epoch.fences import Fences, Life
from streamwork.epoch.job_folder import open_store
from streamwork.epoch.requests import DRAIN
from streamwork.errors import JobFailed
from streamwork.run.savepoints import SavepointMade
from streamwork.run.standbys import ask_to_end, standbys
from streamwork.world import Clock, RealProcesses

POLL_SECONDS = 0.05
STOPPED = "stopped"
"""The answer of a run that ends because of the request."""
NOTE_SECONDS = 5.0
"""Time between two notes about the wait."""
GRACE_SECONDS = 5.0
"""A driver marks itself as ended before it answers. Maximum time between the two."""
RESTART_SECONDS = 0.5
"""A driver that fails marks itself as ended before its supervisor announces a restart. Maximum time between the two."""


class StopResult(msgspec.Struct, frozen=True):
    """How a job stopped."""

    job: str
    root: str
    was_running: bool
    checkpoint: int | None
    text: str
    abandoned: int | None = None  # the checkpoint that waited for a retry, which the stop cancelled
    standbys: int = 0  # that were waiting, and have ended
    savepoint: SavepointMade | None = None


def request_stop(
    root: Path,
    job: str,
    timeout: float,
    clock: Clock,
    note: Callable[[str], object] = lambda line: None,
    drain: bool = False,
) -> StopResult:
    """Ask the driver to stop after the epoch in progress, and wait until it has. Raises SW-STOP-TIMEOUT. With `drain`, it first
    reads the input that is there.

    If the driver fails meanwhile and the same run restarts the job, the request goes to the new driver. The standbys are
    asked first, so that none takes the job over meanwhile; one that is doing so stops like a driver.
    """
    store, processes, until = open_store(root, job), RealProcesses(), clock.monotonic() + timeout
    asked = standbys(store.disk, store.folder, clock, processes)
    for one in asked:
        ask_to_end(store.disk, store.folder, one)
    stopped = _stop_driver(root, job, timeout, clock, note, drain)
    ids = {one.id for one in asked}
    while left := [one for one in standbys(store.disk, store.folder, clock, processes) if one.id in ids]:
        if clock.monotonic() >= until:
            raise JobFailed(
                "SW-STOP-TIMEOUT",
                f"the standby {left[0].process} has not ended within {timeout:g} s",
                "the request stays in place. To end it now, kill the process (kill -9): it holds nothing",
            )
        clock.sleep(POLL_SECONDS)
    if asked and not stopped.was_running:
        stopped = _stop_driver(root, job, max(0.0, until - clock.monotonic()), clock, note, drain)
    return msgspec.structs.replace(stopped, standbys=len(asked))


def check_drained(stopped: StopResult) -> None:
    """Refuse what is not the end of a job that has read the rest of its input."""
    if stopped.text != STOPPED:
        raise JobFailed(
            "SW-STOP-NOT-DRAINED",
            f"the rest of the input of {stopped.job} was not read: {stopped.text}",
            "`streamwork run job.py --until-caught-up` reads it; then create the savepoint. Nothing was saved",
        )


def _stop_driver(
    root: Path, job: str, timeout: float, clock: Clock, note: Callable[[str], object], drain: bool
) -> StopResult:
    store, processes = open_store(root, job), RealProcesses()
    fences = Fences(store.disk, store.folder, clock, processes)
    control = Control(store.disk, store.folder, clock)
    until, next_note, asked, fence = clock.monotonic() + timeout, 0.0, "", 0
    ended_at: float | None = None
    retried: dict[int, Mark] = {}  # checkpoint -> what it was seen to wait for
    while True:
        # The holder is read before the answer, so that an answer given in between is not missed.
        holder = fences.holder()
        over = holder is None or holder.life is Life.GONE
        if holder is not None and holder.life is Life.ENDED:
            ended_at = clock.monotonic() if ended_at is None else ended_at
            deadline = ended_at + (GRACE_SECONDS if asked else RESTART_SECONDS)
            over = processes.gone(holder.process) or clock.monotonic() > deadline
        answer = control.answer(asked) if asked else None
        if answer is not None and answer.text != GONE:
            abandoned = max((epoch for epoch in retried if epoch > (answer.checkpoint or 0)), default=None)
            return StopResult(job, str(root), True, answer.checkpoint, answer.text, abandoned)
        if over or holder is None:
            if asked:
                control.withdraw(asked)
            ended = "was killed" if holder is not None and holder.life is Life.GONE else "has ended by itself"
            newest = max(store.completed(), default=None)
            return StopResult(job, str(root), bool(asked), newest, ended if asked else "not running")
        if holder.life is Life.ENDED:
            clock.sleep(POLL_SECONDS)
            continue
        ended_at = None
        retried |= {mark.epoch: mark for mark in marks(store.disk, store.folder, holder.fence)}
        if holder.fence != fence or answer is not None:
            if asked:
                control.withdraw(asked)
            asked, fence = control.ask(Kind.STOP, holder.fence, {DRAIN: "true"} if drain else None), holder.fence
        now = clock.monotonic()
        if now >= until:
            raise JobFailed(
                "SW-STOP-TIMEOUT",
                f"{holder.process} has not stopped within {timeout:g} s",
                "the request stays in place: the job stops when the epoch in progress is completed. To end it now, kill the "
                "process (kill -9): nothing is lost, and the next start resumes at the last checkpoint",
            )
        if now >= next_note:
            note(_note(str(holder.process), retried, until - now, drain))
            next_note = now + NOTE_SECONDS
        clock.sleep(POLL_SECONDS)


def _note(process: str, retried: dict[int, Mark], left: float, drain: bool) -> str:
    waiting = f"(waiting {left:.0f} s more)"
    if not retried:
        first = "reads the rest of the input" if drain else "completes the epoch in progress"
        return f"asked {process} to stop; it {first} {waiting}"
    mark = retried[max(retried)]
    what = f"{mark.component}[{mark.instance}] retries an event of checkpoint {mark.epoch}"
    return f"asked {process} to stop; {what}, and stops retrying {waiting}"
