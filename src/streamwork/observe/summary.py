"""`Overview`: all jobs of a root, each with what matters most about it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from streamwork.components import Position
from streamwork.epoch.fences import Fences, Holder, Life
from streamwork.epoch.history.lag import lags
from streamwork.epoch.history.reading import at_once, input_ends
from streamwork.epoch.history.values import Result
from streamwork.epoch.job_folder import open_store
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.store import Store
from streamwork.errors import Refused, StreamworkError, described
from streamwork.job.names import is_name
from streamwork.observe.dead_letters import count_letters
from streamwork.observe.rates import Behind, SourceRate, behind, source_rates, together
from streamwork.observe.status import is_running, written_at
from streamwork.observe.verdicts import Verdict, judge
from streamwork.observe.verdicts.reading import read_signs
from streamwork.run.standbys import standbys
from streamwork.world import Clock, RealProcesses

HISTORY = "history.sqlite"


class DriverInfo(msgspec.Struct, frozen=True):
    """The process that holds a job, or has held it last."""

    fence: int
    machine: str
    pid: int
    since: float  # seconds since 1970
    life: Life

    @classmethod
    def of(cls, holder: Holder | None) -> DriverInfo | None:
        if holder is None:
            return None
        return cls(holder.fence, holder.process.machine, holder.process.pid, holder.since, holder.life)


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One job in a list. `problem`: its files cannot be read, and why; then all else is unknown."""

    job: str
    running: bool | None = None
    restarting: bool = False
    verdict: Verdict | None = None  # the worst
    verdicts: int = 0
    rate: SourceRate | None = None
    lag: Behind | None = None
    checkpoint: int | None = None
    completed_at: float | None = None
    abandoned: int = 0  # of the last hundred epochs
    semantics: str = ""
    tracking: str = ""
    mode: str = ""
    checkpoint_every: float | None = None
    driver: DriverInfo | None = None
    standbys: int = 0
    dead_letters: int = 0
    replayed: int = 0
    problem: str = ""


class Overview(msgspec.Struct, frozen=True):
    """The jobs of a root, by name."""

    root: str
    jobs: list[JobSummary]


def job_names(root: Path) -> list[str]:
    """The jobs that have run in a root."""
    return sorted(path.parent.name for path in root.glob("*/job.json") if is_name(path.parent.name))


def read_overview(root: Path, clock: Clock) -> Overview:
    return Overview(str(root), [read_summary(root, job, clock) for job in job_names(root)])


def read_summary(root: Path, job: str, clock: Clock) -> JobSummary:
    """Never raises for what is wrong with the files of one job. A holder on another machine is not watched."""
    try:
        with at_once(root / job / HISTORY):
            return _read(root, job, clock)
    except StreamworkError as error:
        return JobSummary(job=job, problem=f"{error.code}: {error.cause}")
    except OSError as error:
        return JobSummary(job=job, problem=str(error))
    except Exception as error:  # in files that no job has written: the other jobs are shown
        return JobSummary(job=job, problem=f"its files cannot be read: {described(error)}")


def _read(root: Path, job: str, clock: Clock) -> JobSummary:
    store = open_store(root, job)
    fences = Fences(store.disk, store.folder, clock, RealProcesses())
    holder = fences.holder()
    running = is_running(holder)
    done = max(store.completed(), default=None)
    manifest = None if done is None else _manifest(store, done)
    signs = read_signs(store, root, job, clock, holder, running, manifest)
    verdicts = judge(signs)
    start, letters = fences.starts.last(), count_letters(store)
    known = lags(input_ends(store.folder / HISTORY), Position() if manifest is None else manifest.positions)
    rates = source_rates(signs.samples, signs.units, signs.run.checkpoint_every, signs.now) if running else {}
    return JobSummary(
        job=job,
        running=running,
        restarting=signs.restarting,
        verdict=verdicts[0],
        verdicts=len(verdicts),
        rate=together(rates),
        lag=behind(known, rates),
        checkpoint=done,
        completed_at=None if done is None else written_at(store, done),
        abandoned=sum(row.outcome in (Result.ABANDONED, Result.FAILED) for row in signs.epochs),
        semantics="" if start is None else start.semantics,
        tracking="" if start is None else start.tracking,
        mode=signs.run.mode,
        checkpoint_every=signs.run.checkpoint_every if signs.run.mode else None,
        driver=DriverInfo.of(holder),
        standbys=len(standbys(store.disk, store.folder, clock, RealProcesses())),
        dead_letters=letters.count,
        replayed=letters.replayed,
    )


def _manifest(store: Store, epoch: int) -> Manifest | None:
    try:
        return store.manifest(epoch)
    except (Refused, OSError):
        return None  # damaged, or pruned meanwhile
