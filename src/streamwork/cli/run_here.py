"""`run_here`: runs a job from Python code. ``job.run()``, and so ``python job.py``, calls it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from streamwork.errors import WrongUse
from streamwork.job import Job, jobfile
from streamwork.job.jobfile import default_root
from streamwork.job.params import texts
from streamwork.run.options import RunOptions
from streamwork.run.outcome import Outcome
from streamwork.run.runner import run
from streamwork.run.watcher import Watcher


def run_here(
    job: Job, mode: str = "local", root: str | Path | None = None, watcher: Watcher | None = None, **given: Any
) -> Outcome:
    """Run a job, as `Job.run` does; `given` are other fields of `RunOptions`, as `RunOptions.parse` takes them."""
    if jobfile.loading is not None:
        raise WrongUse(
            "SW-JOB-RUN-AT-IMPORT",
            f"{jobfile.loading.name} runs its job while it is imported",
            'put job.run() under  if __name__ == "__main__":',
        )
    main: str | None = getattr(sys.modules["__main__"], "__file__", None)
    named = _variable(job)
    if main is not None and _is_script(main):
        job.home = Path(main).absolute().parent
    options = RunOptions.parse(mode=mode, root=default_root(job.home) if root is None else root, **given)
    if main is not None:
        target = f"{main}:{named}" if _several() else main
        words = ("streamwork", "run", target, *options.arguments(job.home))
        options = msgspec.structs.replace(options, command=words)
    if options.mode.on_spark:
        job, folder = _importable(job, named, Path(main).absolute() if main else None)
        options = msgspec.structs.replace(options, module_folder=folder)
    if watcher is None:
        from streamwork.cli.progress import watcher_for  # Spark's workers import this module, and print nothing

        watcher = watcher_for(sys.stderr)
    try:
        return run(job, options, watcher)
    finally:
        watcher.close()


def _is_script(main: str) -> bool:
    """True if the process was started as ``python FILE.py``. A program such as pytest is not the job's file."""
    return getattr(sys.modules["__main__"], "__spec__", None) is None and main.endswith(".py")


def _variable(job: Job) -> str:
    """NAME in ``JOBFILE:NAME``: the variable, because two jobs of a file may have the same name."""
    return next((name for name, value in vars(sys.modules["__main__"]).items() if value is job), job.name)


def _several() -> bool:
    return len({id(value) for value in vars(sys.modules["__main__"]).values() if isinstance(value, Job)}) > 1


def _importable(job: Job, named: str, main: Path | None) -> tuple[Job, Path | None]:
    """The job, imported from its file under a stable name if its classes are those of ``__main__``, which Spark's workers cannot
    import; and the folder of that file.
    """
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
    return jobfile.load_job(f"{main}:{named}", texts(graph.params)).job, main.parent
