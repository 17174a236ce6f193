"""The arguments of commands about a job: JOBFILE[:NAME], or --root ROOT JOB."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from streamwork.epoch.fences import Fences
from streamwork.epoch.job_folder import open_store
from streamwork.job import params
from streamwork.job.jobfile import JobFile, load_job
from streamwork.run.forking import forked_job
from streamwork.world import RealClock, RealProcesses

Command = Callable[..., None]


def about_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the arguments JOBFILE[:NAME], or --root ROOT JOB."""
    root = click.option("--root", type=click.Path(path_type=Path), help="The root; JOB is then the job's name.")
    return click.argument("job", metavar="JOBFILE[:NAME] | JOB")(root(command))


def find(job: str, root: Path | None) -> tuple[Path, str]:
    """The root and the name of the job. A job file is imported only if one is named."""
    if root is None or Path(job.partition(":")[0]).is_file():
        loaded = load_job(job)
        return (root or loaded.default_root).absolute(), loaded.job.name
    return root.absolute(), job


def with_job_file(command: Command) -> Command:
    """The arguments of commands that need the job file: JOBFILE[:NAME] [--root ROOT]."""
    root = click.option(
        "--root", type=click.Path(path_type=Path), help="The root  [default: .streamwork beside JOBFILE]"
    )
    return click.argument("job", metavar="JOBFILE[:NAME]")(root(command))


AS = click.option("--as", "fork", metavar="NAME", help="The fork of this name.")


def load_as_it_ran(job: str, root: Path | None, fork: str | None = None) -> tuple[JobFile, Path]:
    """The job of a file, or a fork of it, with the parameters of its last run, and its root."""
    loaded = load_job(job)
    root = (root or loaded.default_root).absolute()
    store, clock = open_store(root, fork or loaded.job.name), RealClock()
    ran = Fences(store.disk, store.folder, clock, RealProcesses()).starts.params()
    known = {name: value for name, value in ran.items() if name in loaded.job.params}
    if known != {name: params.stored(value) for name, value in loaded.job.params.items()}:
        loaded = load_job(job, params.texts(tuple(known.items())))
    return as_fork(loaded, root, fork), root


def as_fork(loaded: JobFile, root: Path, fork: str | None) -> JobFile:
    return loaded if fork is None else JobFile(forked_job(loaded.job, root, fork), loaded.path)
