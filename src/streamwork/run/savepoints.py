"""Creating and dropping savepoints, for ``streamwork savepoint`` and ``streamwork stop --savepoint``.

the job runs      a request in `control/`: its driver makes the savepoint, and goes on (`epoch.savepoints.taking`)
it is at rest     this process becomes its driver for that time: it takes the fence, rolls forward what is prepared, and saves
"""

from __future__ import annotations

import getpass
import secrets
from collections.abc import Callable

import msgspec

from streamwork.epoch import Driver, Store
from streamwork.epoch.control import GONE, Answer, Control, Kind
from streamwork.epoch.fences import End, Fences, Life
from streamwork.epoch.history.history import History
from streamwork.epoch.savepoints import FOLDER, Savepoint
from streamwork.epoch.savepoints.record import DONE, read_begun
from streamwork.epoch.savepoints.savepoint import missing
from streamwork.epoch.savepoints.taking import BY, NAME, NOTE
from streamwork.epoch.savepoints.writer import check_free
from streamwork.errors import JobFailed, Refused, StreamworkError, WrongUse
from streamwork.hosts.local import LocalHost
from streamwork.job import Graph, Job
from streamwork.job.names import check_name
from streamwork.job.settings import Settings
from streamwork.world import Clock, RealProcesses
from streamwork.world.heartbeat import Heartbeat

POLL_SECONDS = 0.05
Note = Callable[[str], None]


class SavepointMade(msgspec.Struct, frozen=True):
    """A savepoint that was created."""

    job: str
    root: str
    name: str
    path: str
    checkpoint: int
    bytes: int
    rows: int
    by: str
    note: str
    was_running: bool  # the job's driver made it, and went on
    seconds: float


class SavepointDropped(msgspec.Struct, frozen=True):
    job: str
    root: str
    name: str
    complete: bool  # False: it was half-made


def create_savepoint(
    job: Job, store: Store, name: str, note: str, timeout: float, clock: Clock, tell: Note = lambda line: None
) -> SavepointMade:
    """Returns when the savepoint is complete. A living job goes on meanwhile."""
    began = clock.monotonic()
    made = savepoint_of_running(job.name, store, name, note, timeout, clock)
    if made is not None:
        return made
    _at_rest(job, store, name, note, me(), clock, tell)
    return _made(job.name, store, name, False, clock.monotonic() - began)


def savepoint_of_running(
    job: str, store: Store, name: str, note: str, timeout: float, clock: Clock
) -> SavepointMade | None:
    """Returns when the savepoint is complete; None if the job does not run. Needs no job file."""
    began = clock.monotonic()
    check_new(store, name)
    if not _ask(store, name, note, me(), timeout, clock):
        return None
    return _made(job, store, name, True, clock.monotonic() - began)


def _made(job: str, store: Store, name: str, was_running: bool, seconds: float) -> SavepointMade:
    folder = store.folder / FOLDER / name
    record = Savepoint.open(store.disk, folder).record
    return SavepointMade(
        job=job,
        root=str(store.folder.parent),
        name=name,
        path=str(folder),
        checkpoint=record.epoch,
        bytes=record.bytes,
        rows=record.rows,
        by=record.by,
        note=record.note,
        was_running=was_running,
        seconds=round(seconds, 3),
    )


def check_new(store: Store, name: str) -> None:
    """Refuse a name that is not usable, or taken."""
    check_name(name, "savepoint")
    check_free(store.disk, store.folder / FOLDER / name)


def me() -> str:
    """Who runs this process, as a savepoint names it: USER@MACHINE."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may have no name for its user
        user = "unknown"
    return f"{user}@{RealProcesses().me().machine}"


# ---- the job runs -------------------------------------------------------------------------------------------------


def _ask(store: Store, name: str, note: str, by: str, timeout: float, clock: Clock) -> bool:
    """Ask the driver, and wait for its answer. False if there is none, or it ends before it has begun."""
    fences = Fences(store.disk, store.folder, clock, RealProcesses())
    control = Control(store.disk, store.folder, clock)
    until, asked, fence = clock.monotonic() + timeout, "", 0
    while True:
        # The holder is read before the answer, so that an answer given in between is not missed.
        holder = fences.holder()
        answer = control.answer(asked) if asked else None
        if answer is not None and answer.text != GONE:
            if not answer.ok:
                raise _refused(answer)
            return True
        if holder is None or holder.life in (Life.GONE, Life.ENDED):
            if asked:
                control.withdraw(asked)
            check_free(store.disk, store.folder / FOLDER / name)  # that driver may have begun it
            return False
        if holder.fence != fence or answer is not None:
            if holder.life is Life.UNKNOWN:  # on another machine: does it live?
                found = fences.holder(watch=fences.lease_of(holder.fence))
                if found is None or found.life is not Life.RUNNING:
                    return False
            if asked:
                control.withdraw(asked)
            fence, arguments = holder.fence, {NAME: name, NOTE: note, BY: by}
            asked = control.ask(Kind.SAVEPOINT, fence, arguments)
        if clock.monotonic() >= until:
            control.withdraw(asked)
            raise JobFailed(
                "SW-SAVEPOINT-TIMEOUT",
                f"{holder.process} has not completed the savepoint within {timeout:g} s",
                "look with `streamwork savepoint list job.py` whether it was begun: then the driver completes "
                "it by itself; or wait longer, with --timeout",
            )
        clock.sleep(POLL_SECONDS)


def _refused(answer: Answer) -> StreamworkError:
    kinds: dict[str, type[StreamworkError]] = {"SW-SAVEPOINT-FAILED": JobFailed, "SW-JOB-NAME": WrongUse}
    code = answer.code or "SW-SAVEPOINT-FAILED"
    return kinds.get(code, Refused)(code, answer.text, answer.action or "start the job with this version of Streamwork")


# ---- it is at rest ------------------------------------------------------------------------------------------------


def _at_rest(job: Job, store: Store, name: str, note: str, by: str, clock: Clock, tell: Note) -> None:
    """Take the fence, roll forward, save, and leave the job at rest again."""
    settings = as_last_started(job.settings, store, clock)
    with AtRest(job.graph(settings), settings, store, clock, tell) as driver:
        driver.save(name, by, note)


class AtRest:
    """A context: the driver of a job at rest: started, with everything rolled forward, and without any input read."""

    def __init__(self, graph: Graph, settings: Settings, store: Store, clock: Clock, tell: Note) -> None:
        self._driver = Driver(
            graph,
            settings,
            store,
            LocalHost(store.disk, clock=clock),
            clock,
            lambda: secrets.token_hex(16),
            processes=RealProcesses(),
            history=History(store.folder / "history.sqlite", warn=tell),
        )
        self._driver.fences.tell = tell
        self._heartbeat = Heartbeat(self._driver.beat, settings.lease / 4)

    def __enter__(self) -> Driver:
        self._heartbeat.__enter__()
        try:
            self._driver.start()
        except BaseException:
            self.__exit__()
            raise
        return self._driver

    def __exit__(self, *error: object) -> None:
        try:
            self._driver.close()
            if self._driver.fences.mine is not None:
                self._driver.fences.end(End.FINISHED)
        finally:
            self._heartbeat.__exit__(None, None, None)


def as_last_started(settings: Settings, store: Store, clock: Clock) -> Settings:
    """The settings of a job, with the semantics that it last ran with."""
    promise = Fences(store.disk, store.folder, clock, RealProcesses()).starts.promise()
    if promise is None:
        return settings
    tracking = None if promise.tracking is None else promise.tracking.value
    return msgspec.structs.replace(settings, semantics=promise.semantics.value, tracking=tracking)


# ---- dropping -----------------------------------------------------------------------------------------------------


def drop_savepoint(job: Job, store: Store, name: str) -> SavepointDropped:
    """Remove a savepoint, complete or half-made.

    `savepoint.json` goes first: a drop that is interrupted leaves a half-made savepoint, which can be dropped. Then its logs no
    longer keep events for it.
    """
    check_name(name, "savepoint")
    disk, folder = store.disk, store.folder / FOLDER / name
    if not disk.names(folder):
        raise missing(disk, folder)
    begun, complete = read_begun(disk, folder), disk.exists(folder / DONE)
    disk.remove(folder / DONE)
    if begun is not None and begun.consumer:
        for node in job.graph().planned:
            node.component.forget(begun.consumer)
    disk.remove_tree(folder)
    return SavepointDropped(job.name, str(store.folder.parent), name, complete)
