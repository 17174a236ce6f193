"""``job.run()``: running a job from Python code; ``python job.py`` ends up here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from streamwork.errors import WrongUse
from streamwork.hosts.master import DEFAULT_MASTER
from streamwork.job import Job, Retry, jobfile
from streamwork.job.duration import seconds
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.outcome import Outcome
from streamwork.run.runner import run
from streamwork.run.watcher import Watcher


def run_here(
    job: Job,
    mode: str = "local",
    root: str | Path | None = None,
    until_caught_up: bool = False,
    checkpoint_every: str | float | None = None,
    retain: int | None = None,
    lease: str | float | None = None,
    restart: bool = True,
    take_over: bool = False,
    accept_divergence: bool = False,
    semantics: str | None = None,
    tracking: str | None = None,
    change_semantics: bool = False,
    drop_state: Sequence[str] = (),
    on_error: Mapping[str, str | Retry] | None = None,
    refill: Sequence[str] = (),
    master: str = DEFAULT_MASTER,
    spark_log: bool = False,
    watcher: Watcher | None = None,
) -> Outcome:
    """What `Job.run` does."""
    if jobfile.loading is not None:
        raise WrongUse(
            "SW-JOB-RUN-AT-IMPORT",
            f"{jobfile.loading.name} runs its job while it is imported",
            'put job.run() under  if __name__ == "__main__":',
        )
    if mode not in {known.value for known in Mode}:
        raise WrongUse(
            "SW-JOB-SETTING", f"mode {mode!r} is not known", f"use one of: {', '.join(m.value for m in Mode)}"
        )
    main: str | None = getattr(sys.modules["__main__"], "__file__", None)
    named = _variable(job)
    if main is not None and _is_script(main):
        job.home = Path(main).absolute().parent
    home = job.home
    target = f"{main}:{named}" if _several() else f"{main}"
    folder = None
    if Mode(mode).on_spark:
        job, folder = _importable(job, named, Path(main).absolute() if main else None)
    options = RunOptions(
        mode=Mode(mode),
        root=Path(root).absolute() if root is not None else home / ".streamwork",
        master=master,
        until_caught_up=until_caught_up,
        checkpoint_every=None if checkpoint_every is None else seconds(checkpoint_every),
        retain=retain,
        lease=None if lease is None else seconds(lease),
        restart=restart,
        take_over=take_over,
        accept_divergence=accept_divergence,
        semantics=semantics,
        tracking=tracking,
        change_semantics=change_semantics,
        refill=tuple(refill),
        drop_state=tuple(drop_state),
        spark_log=spark_log,
        module_folder=folder,
        on_error={name: str(policy) for name, policy in (on_error or {}).items()},
        command=_command(target, mode, root, until_caught_up, semantics, tracking, on_error or {}) if main else (),
    )
    if watcher is None:
        from streamwork.cli.progress import watcher_for  # Spark's workers import this module, and show nothing

        watcher = watcher_for(sys.stderr)
    try:
        return run(job, options, watcher)
    finally:
        watcher.close()


def _is_script(main: str) -> bool:
    """True if the process was started as ``python FILE.py``. A program such as pytest is not the job's file."""
    return getattr(sys.modules["__main__"], "__spec__", None) is None and main.endswith(".py")


def _variable(job: Job) -> str:
    """By what ``JOBFILE:NAME`` finds it: two jobs of a file may have one name, but not one variable."""
    return next((name for name, value in vars(sys.modules["__main__"]).items() if value is job), job.name)


def _several() -> bool:
    return len({id(value) for value in vars(sys.modules["__main__"]).values() if isinstance(value, Job)}) > 1


def _command(
    target: str,
    mode: str,
    root: str | Path | None,
    until_caught_up: bool,
    semantics: str | None,
    tracking: str | None,
    on_error: Mapping[str, str | Retry],
) -> tuple[str, ...]:
    """What to type to run it in the same way, for errors that say how to go on."""
    given = {"--root": root, "--semantics": semantics, "--tracking": tracking}
    more = [word for option, value in given.items() if value is not None for word in (option, str(value))]
    more += ["--until-caught-up"] if until_caught_up else []
    more += [word for component, policy in on_error.items() for word in ("--on-error", f"{component}={policy}")]
    return ("streamwork", "run", target, "--mode", mode, *more)


def _importable(job: Job, named: str, main: Path | None) -> tuple[Job, Path | None]:
    """Classes of ``__main__`` do not reach Spark's workers: take the job from its file, imported under a stable name."""
    graph = job.graph()
    kinds = [k for n in graph.nodes for k in (type(n.component), n.takes, n.keeps, n.gives) if k is not None]
    if not any(kind.__module__ == "__main__" for kind in kinds):
        return job, None
    if main is None or main.suffix != ".py":
        raise WrongUse(
            "SW-JOB-MAIN",
            f"job {job.name!r} is defined in an interactive session, where Spark's workers cannot import it from",
            'put it into a file and use `streamwork run FILE`, or run it with mode="local"',
        )
    return jobfile.load_job(f"{main}:{named}").job, main.parent
