"""Loads a job from its file: JOBFILE[:NAME]."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from streamwork.errors import StreamworkError, WrongUse
from streamwork.job import params
from streamwork.job.job import Job


@dataclass(frozen=True)
class JobFile:
    """A job and the file that defines it."""

    job: Job
    path: Path

    @property
    def default_root(self) -> Path:
        return default_root(self.path.parent)


def default_root(home: Path) -> Path:
    """The root of the jobs whose file is in the folder `home`, if no other is given."""
    return home / ".streamwork"


loading: Path | None = None
"""The file that is being imported now, or None. `Job.run` refuses to run during an import."""


def load_job(target: str, given: Mapping[str, str] | None = None) -> JobFile:
    """The job of ``JOBFILE`` or ``JOBFILE:NAME``; NAME is that of its variable or, if there is none, of the job.

    `given` are values of its parameters, as text. The file is imported with them.
    """
    found = _load(target, given or {})
    params.check_known(given or {}, found.job.name, found.job.params)
    return found


def _load(target: str, given: Mapping[str, str]) -> JobFile:
    file, _, name = target.partition(":")
    path = Path(file).absolute()
    if not path.is_file():
        raise WrongUse("SW-JOBFILE-MISSING", f"there is no file {path}", "name the Python file that defines the job")
    if ".." in path.parts:  # the folder before it may be removed, and the path is kept in files
        path = path.parent.resolve() / path.name
    with params.giving(given, path.stem):
        module = import_file(path)
    jobs = {variable: value for variable, value in vars(module).items() if isinstance(value, Job)}
    if name in jobs:
        return _at_home(jobs[name], path)
    found = {id(job): variable for variable, job in jobs.items() if not name or name == job.name}
    if len(found) == 1:
        return _at_home(jobs[next(iter(found.values()))], path)
    known = ", ".join(f"{variable} ({job.name})" for variable, job in jobs.items()) or "none"
    if not found:
        what = f"no job {name!r}" if name else "no job"
        raise WrongUse(
            "SW-JOBFILE-NO-JOB", f"{path} has {what} (found: {known})", "define it at the top level: job = Job(...)"
        )
    ways = " or ".join(shlex.quote(f"{file}:{variable}") for variable in found.values())
    raise WrongUse("SW-JOBFILE-SEVERAL", f"{path} has several jobs: {known}", f"name the variable: {ways}")


def _at_home(job: Job, path: Path) -> JobFile:
    job.home = path.parent
    return JobFile(job, path)


def import_file(path: Path) -> ModuleType:
    """Import a file under its own name, so that Spark's workers can import it too."""
    global loading
    name = path.stem
    if name in sys.stdlib_module_names:
        raise WrongUse(
            "SW-JOBFILE-NAME",
            f"{path.name} has the name of a module of the standard library",
            "give the file another name",
        )
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if not name.isidentifier():
        raise WrongUse(
            "SW-JOBFILE-NAME",
            f"{path.name} cannot be imported by workers",
            "name the file like a Python module: letters, digits, _",
        )
    other = known or _known_elsewhere(name, path.parent)
    if other is not None:
        place = getattr(other, "__file__", None) or getattr(other, "origin", None)
        raise WrongUse(
            "SW-JOBFILE-NAME", f"{path.name} has the name of another module ({place})", "give the file another name"
        )
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise WrongUse(
            "SW-JOBFILE-NAME", f"{path.name} is not a Python file", "name the file that defines the job: JOB.py"
        )
    sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loading = path
    try:
        assert spec.loader is not None
        spec.loader.exec_module(module)
    except StreamworkError:
        sys.modules.pop(name, None)
        raise
    except Exception as error:
        sys.modules.pop(name, None)
        raise WrongUse(
            "SW-JOBFILE-FAILED",
            f"importing {path} raised {type(error).__name__}: {error}{_line_in(path, error)}",
            f"fix the file; `python {shlex.quote(str(path))}` shows the whole traceback",
        ) from error
    finally:
        loading = None
    return module


def _known_elsewhere(name: str, folder: Path) -> object | None:
    """A module of that name that belongs to Python or is installed: code that imports it must not get the job file."""
    own = {
        folder.resolve(),
        *(Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry),
    }
    paths = [entry for entry in sys.path if Path(entry or ".").resolve() not in own]
    return importlib.machinery.PathFinder.find_spec(name, paths) or (name if name in sys.builtin_module_names else None)


def _line_in(path: Path, error: BaseException) -> str:
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line})" if line else ""
