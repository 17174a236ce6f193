"""``streamwork dev``: runs a job, and restarts it whenever one of its files is saved.

A supervisor runs ``streamwork run --mode local`` as a child process and watches the files of the job. Each version runs in a new
process, so that no module, class or open file of the previous one remains. In rounds:

1. Record the state of the files, then start the child. Any later save is noticed, even during the start.
2. Wait until a file is saved, the child ends by itself (an error, or the end of the input), or Ctrl-C is pressed.
3. Stop the child, which completes its checkpoint first. A child that does not stop is killed, which loses nothing.
4. If the child ended by itself, wait for a save: the same files would end in the same way.
5. Wait until the files no longer change, as an editor may still be writing; then restart from the last checkpoint.

The root is that of ``streamwork run``: a sink's table belongs to the root that filled it, so that with a root of its own `dev`
would be refused (SW-SINK-OWNED) by the tables that `run` has written.
"""

from __future__ import annotations

import ast
import os
import secrets
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any

import msgspec

from streamwork.errors import WrongUse
from streamwork.job.jobfile import default_root
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.world import Clock

POLL_SECONDS = 0.1
STOP_SECONDS = 10.0  # an `apply` that never returns must not block the start of its fix

Signature = tuple[int, int, int] | None
"""Time of the last change, size and inode of a file; None if there is no file."""


class DevOutcome(msgspec.Struct, frozen=True):
    """The result of a session: how often the job was started, and how many starts ended in an error."""

    jobfile: str
    starts: int
    failures: int


class Asked:
    """How many stop signals have come. The first stops the child cleanly, the second kills it."""

    times = 0


def develop(
    target: str,
    note: Callable[[str], object],
    output: IO[str] | None,
    clock: Clock,
    root: Path | None = None,
    **given: Any,
) -> DevOutcome:
    """Run ``JOBFILE[:NAME]`` again after every save, until SIGINT, SIGTERM or SIGHUP, in the rounds described above.

    `note` receives the supervisor's own lines, `output` what the child prints (None: this process's standard output); errors go
    to standard error. `given` are further fields of `RunOptions`. Only the main thread may call this, as it handles signals.
    """
    path = Path(target.partition(":")[0]).absolute()
    if not path.is_file():
        raise WrongUse("SW-JOBFILE-MISSING", f"there is no file {path}", "name the Python file that defines the job")
    options = RunOptions.parse(
        mode=Mode.LOCAL,
        root=root or default_root(path.parent),
        restart=False,
        drop_request=secrets.token_hex(8),  # the same for all starts: the first that can drops the state
        **given,
    )
    command = [sys.executable, "-P", "-m", "streamwork", "run", target, *options.arguments(path.parent)]
    starts = failures = 0
    with _listening() as asked:
        while not asked.times:
            # 1. note, start
            seen = Snapshot.of(job_files(path))
            child = _start(command, output)
            starts += 1
            try:
                # 2. wait for a save, an end, or Ctrl-C
                while child.poll() is None and not asked.times and not seen.changes():
                    clock.sleep(POLL_SECONDS)
                by_itself = child.poll() is not None and not asked.times
                # 3. stop
                if not _stop(child, asked, clock):
                    note("the job did not stop in time and was killed; its last checkpoint is good")
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
            # 4. wait for a save
            if by_itself:
                failures += child.returncode != 0
                note(f"{_ended(child.returncode)}; waiting for {path.name} or a module it imports to be saved")
                while not asked.times and not seen.changes():
                    clock.sleep(POLL_SECONDS)
            # 5. wait until the files no longer change
            if not asked.times:
                saved = seen.changes()
                _rest(seen.files, asked, clock)
                note(f"saved: {', '.join(sorted(_shown(file, path.parent) for file in saved))}; starting again")
    return DevOutcome(jobfile=str(path), starts=starts, failures=failures)


class Snapshot(msgspec.Struct, frozen=True):
    """The state of some files at one moment."""

    files: dict[Path, Signature]

    @classmethod
    def of(cls, files: Iterable[Path]) -> Snapshot:
        return cls({file: _signature(file) for file in files})

    def changes(self) -> list[Path]:
        """The files that have been written, replaced, created or removed since."""
        return [file for file, before in self.files.items() if _signature(file) != before]


def job_files(jobfile: Path) -> set[Path]:
    """The job file, and every file beside or below it that its imports lead to.

    Derived from the source text, so that it works for files that cannot be imported, and for imports inside functions. Files
    that do not exist, but would be imported if they did, are included: creating one is a change.
    """
    folder = jobfile.parent
    found, unread = {jobfile}, [jobfile]
    while unread:
        file = unread.pop()
        for module in _imports(file, folder):
            for candidate in _candidates(folder, module):
                if candidate not in found:
                    found.add(candidate)
                    unread.append(candidate)
    return found


def _imports(file: Path, folder: Path) -> Iterator[tuple[str, ...]]:
    """The modules that a file imports, as seen from `folder`; none if it cannot be read or parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the child prints them
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    package = file.parent.relative_to(folder).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield tuple(name.name.split("."))
        elif isinstance(node, ast.ImportFrom) and node.level <= len(package):
            base = package[: len(package) - node.level + 1] if node.level else ()
            origin = (*base, *(node.module.split(".") if node.module else ()))
            for name in node.names:  # each may be a module, or something in one
                yield (*origin, name.name)


def _candidates(folder: Path, module: tuple[str, ...]) -> Iterator[Path]:
    """The files that importing `module` would run: that of the module, and those of the packages around it."""
    for part in module:
        if part == "*":
            return
        yield folder / f"{part}.py"
        folder = folder / part
        yield folder / "__init__.py"
        if not folder.is_dir():
            return


def _signature(file: Path) -> Signature:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _rest(files: Iterable[Path], asked: Asked, clock: Clock) -> None:
    """Return when nothing was written for one poll."""
    while not asked.times:
        before = Snapshot.of(files)
        clock.sleep(POLL_SECONDS)
        if not before.changes():
            return


def _start(command: list[str], output: IO[str] | None) -> subprocess.Popen[bytes]:
    """Start the child with SIGINT ignored until it handles it: a Ctrl-C during its start would print a traceback."""
    # Cached bytecode is recognised by second and size: after two quick saves, the code of the first could run.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        command, stdout=output, env=environment, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
    )


def _stop(child: subprocess.Popen[bytes], asked: Asked, clock: Clock) -> bool:
    """Ask the child to stop and wait for it. False if it had to be killed: it took too long, or Ctrl-C came again."""
    if child.poll() is None:
        child.terminate()
    deadline = clock.monotonic() + STOP_SECONDS
    while child.poll() is None:
        if clock.monotonic() > deadline or asked.times > 1:
            child.kill()
            child.wait()
            return False
        clock.sleep(POLL_SECONDS / 5)
    return True


def _ended(status: int) -> str:
    if status == 0:
        return "all input has been read"
    return f"the job was ended by {signal.Signals(-status).name}" if status < 0 else "the job has stopped"


def _shown(file: Path, folder: Path) -> str:
    return str(file.relative_to(folder))


@contextmanager
def _listening() -> Iterator[Asked]:
    asked = Asked()

    def ask(number: int, frame: FrameType | None) -> None:
        asked.times += 1

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
