"""`Maker`: writes snapshots into the cache in a child process of the lowest priority.

A thread would share the interpreter's lock with those that answer: at a low priority it is suspended while it holds the lock, and
at a normal one it takes time from the job.
"""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, cast

import pyarrow as pa

from streamwork.query.shape import Shape
from streamwork.world import FileRef, step_back

_START = "import sys; sys.path[:] = {path!r}; from streamwork.query.making import main; main()"
_DONE, _FAILED = b"1", b"0"


class Wanted(Protocol):
    """Something to be made. It is pickled, and called in the child."""

    def __call__(self) -> object: ...


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of one component's instances, to be put into a cache."""

    cache: Path
    uid: str
    job: Path
    shape: Shape
    defaults: Mapping[str, pa.Array]
    refs: tuple[FileRef, ...]

    def __call__(self) -> object:
        from streamwork.query.cache import Cache
        from streamwork.world import RealDisk

        return Cache(self.cache, self.uid).block(RealDisk(), self.job, self.shape, self.defaults, self.refs)


class Maker:
    """The child is started when it is first needed, and ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def make(self, wanted: Wanted) -> bool:
        """Wait until it is made. False if the child could not make it, or has ended: then the caller makes it, or fails like it."""
        with self._lock:
            try:
                process = self._running()
                pickle.dump(wanted, cast(IO[bytes], process.stdin))
                cast(IO[bytes], process.stdin).flush()
                answer = cast(IO[bytes], process.stdout).read(1)
            except (OSError, ValueError):
                answer = b""
            if not answer:
                self._end()
            return answer == _DONE

    def close(self) -> None:
        if (process := self._process) is not None:
            process.kill()  # what it was making counts only when it is whole
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            start = _START.format(path=[entry for entry in sys.path if entry])
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", start],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                cast(IO[bytes], pipe).close()
        process.wait()


def main() -> None:
    """The child: makes one thing after the other, until its parent closes the pipe or ends."""
    step_back()
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            wanted = cast(Wanted, pickle.load(asked))
            try:
                wanted()
                answer = _DONE
            except Exception:
                answer = _FAILED
            answers.write(answer)
            answers.flush()
