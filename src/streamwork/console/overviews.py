"""`Overviews`: the overview of a root, of which only what may have changed is read again."""

from __future__ import annotations

import threading
from pathlib import Path

from streamwork.observe.summary import JobSummary, Overview, job_names, read_summary
from streamwork.world import Clock

FILES = ("job.json", "history.sqlite", "graph.json")
FOLDERS = ("", "checkpoints", "fences", "standbys", "vitals", "dead-letters", "inbox")
Stamp = tuple[tuple[int, int, int] | None, ...]


class Overviews:
    """May be read from several threads."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Stamp, JobSummary]] = {}

    def read(self) -> Overview:
        with self._lock:
            names = job_names(self._root)
            found = [self._job(name) for name in names]
            for gone in self._known.keys() - set(names):
                del self._known[gone]
            return Overview(str(self._root), found)

    def _job(self, name: str) -> JobSummary:
        """A job that does not run changes no more while its files do not: only a start or a command changes it. What a running job
        shows depends on the time, too.
        """
        stamp = _stamp(self._root / name)
        known = self._known.get(name)
        if known is not None and known[0] == stamp and known[1].running is False and not known[1].standbys:
            return known[1]
        found = read_summary(self._root, name, self._clock)
        self._known[name] = (stamp, found)
        return found


def _stamp(folder: Path) -> Stamp:
    return tuple(_sign(folder / name) for name in (*FILES, *FOLDERS))


def _sign(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
