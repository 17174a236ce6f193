"""``streamwork dev``: a job that goes on while its file is being edited.

A supervisor runs ``streamwork run --mode local`` as a child process and looks at the files the job is made of. A new process
for each version means that nothing of the old one is left over: no module, no class, no open file. In rounds:

1. Note the files as they are, then start the child. A save from here on is seen, even one during the start.
2. Wait until a file is saved, the child ends by itself (a mistake, or all input read), or somebody presses Ctrl-C.
3. Stop the child: it completes the checkpoint under way. One that does not stop is killed, which loses nothing.
4. If the child ended by itself, it has said why: wait for a save. Starting the same files again would end the same way.
5. Wait until the files rest, as an editor may be in the middle of writing them; begin anew, from the last checkpoint.

The root is that of ``streamwork run``: a sink's table belongs to the folder that filled it, so with a folder of its own `dev`
would be refused (SW-SINK-OWNED) by the very file that `run` had written.
"""

from __future__ import annotations

import ast
import os
import secrets
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

import msgspec

from streamwork.errors import WrongUse
from streamwork.world import Clock

POLL_SECONDS = 0.1
STOP_SECONDS = 10.0  # an `apply` that never returns must not keep its own mending from being tried

Signature = tuple[int, int, int] | None
"""When a file was changed, its size and its inode; None for a file that is not there."""


class DevOutcome(msgspec.Struct, frozen=True):
    """What a session did: how often the job was started, and how many of these ended in an error."""

    jobfile: str
    starts: int
    failures: int


class Asked:
    """How often somebody has asked for the end. Once: stop well; twice: at once."""

    times = 0


def develop(
    target: str,
    root: Path | None,
    say: Callable[[str], object],
    output: IO[str] | None,
    clock: Clock,
    drop_state: Sequence[str] = (),
    refill: Sequence[str] = (),
) -> DevOutcome:
    """Run ``JOBFILE[:NAME]`` anew after every save, until SIGINT, SIGTERM or SIGHUP; the rounds are told above.

    `say` gets the supervisor's own lines, `output` what the child prints (None: this process's standard output); errors go to
    standard error. Only the main thread may call this, as it listens to signals.
    """
    path = Path(target.partition(":")[0]).absolute()
    if not path.is_file():
        raise WrongUse("SW-JOBFILE-MISSING", f"there is no file {path}", "name the Python file that defines the job")
    command = [sys.executable, "-P", "-m", "streamwork", "run", target, "--mode", "local", "--no-restart"]
    if root is not None:
        command += ["--root", str(root)]
    if drop_state:  # one request for all starts: the first that can drops it
        command += ["--drop-request", secrets.token_hex(8), *(f"--drop-state={name}" for name in drop_state)]
    command += [f"--refill={name}" for name in refill]
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
                    say("the job did not stop in time and was killed; its last checkpoint is good")
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
            # 4. wait for a save
            if by_itself:
                failures += child.returncode != 0
                say(f"{_ended(child.returncode)}; waiting for {path.name} or a module it imports to be saved")
                while not asked.times and not seen.changes():
                    clock.sleep(POLL_SECONDS)
            # 5. let the files rest
            if not asked.times:
                saved = seen.changes()
                _rest(seen.files, asked, clock)
                say(f"saved: {', '.join(sorted(_shown(file, path.parent) for file in saved))}; starting again")
    return DevOutcome(jobfile=str(path), starts=starts, failures=failures)


class Snapshot(msgspec.Struct, frozen=True):
    """How some files were at one moment."""

    files: dict[Path, Signature]

    @classmethod
    def of(cls, files: Iterable[Path]) -> Snapshot:
        return cls({file: _signature(file) for file in files})

    def changes(self) -> list[Path]:
        """The files that have been written, replaced, made or removed since."""
        return [file for file, before in self.files.items() if _signature(file) != before]


def job_files(jobfile: Path) -> set[Path]:
    """The job file, and every file beside or below it that its imports lead to.

    Told from the text, so that it holds for files that cannot be imported just now, and for imports inside functions. A file
    that an import would find if it were there is among them: making it is a change too.
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
            warnings.simplefilter("ignore")  # the child will tell
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
    """The child gets no SIGINT before it listens to it: a Ctrl-C while it starts would show a traceback."""
    # Bytecode is told apart by the second and the size: with it, two quick saves could run the first one's code.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        command, stdout=output, env=environment, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
    )


def _stop(child: subprocess.Popen[bytes], asked: Asked, clock: Clock) -> bool:
    """Ask the child to stop and wait for it. False if it had to be killed: it took too long, or Ctrl-C came again."""
    if child.poll() is None:
        child.terminate()
    patience = clock.monotonic() + STOP_SECONDS
    while child.poll() is None:
        if clock.monotonic() > patience or asked.times > 1:
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
