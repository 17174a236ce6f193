"""`Followed`: a job whose folder a thread follows, so that no request reads files to find the newest checkpoint."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from streamwork.epoch.job_folder import open_store
from streamwork.errors import JobFailed, StreamworkError, WrongUse
from streamwork.job.names import check_name
from streamwork.query.answer import Consistency, Selection
from streamwork.query.reader import FOLLOW_EVERY, Reader
from streamwork.world import Clock, RealClock

SHARE = 0.25
"""The most time that a thread spends on reading new checkpoints; if they come faster, several are read together."""
WAIT_TO_OPEN = 0.2
"""Seconds until a job that cannot be read is tried again."""


class Followed:
    def __init__(self, folder: Path, cache: Path | None = None, clock: Clock | None = None) -> None:
        self.folder = folder
        self._cache = cache
        self._clock = clock or RealClock()
        self._reader: Reader | None = None
        self._trouble = ""
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._thread = threading.Thread(target=self._follow, name=f"streamwork-query-{folder.name}", daemon=True)
        self._thread.start()

    @property
    def reader(self) -> Reader:
        """Refuses as long as nothing of the job can be read (SW-QUERY-NO-STATE)."""
        if self._reader is None:
            raise JobFailed(
                "SW-QUERY-NO-STATE",
                f"the job in {self.folder.name} cannot be read yet: {self._trouble or 'its state is being read'}",
                "wait until the job has started",
            )
        return self._reader

    async def reach(self, selection: Selection) -> Selection:
        """Wait for the checkpoint that a selection asks for. The selection that is left waits no more."""
        if selection.at_least is not None:
            await self.changed(selection, selection.at_least, selection.timeout)
        return _now(selection)

    async def changed(self, selection: Selection, epoch: int, timeout: float) -> None:
        """Wait until there is a checkpoint of at least this number, at most `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        with self.listening() as seen:
            while (left := deadline - loop.time()) > 0:
                seen.clear()
                if self.epoch(selection) >= epoch:
                    return
                try:
                    await asyncio.wait_for(seen.wait(), left)
                except TimeoutError:
                    return

    @contextlib.contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever the folder has something new."""
        found = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.add(found)
        try:
            yield found[1]
        finally:
            with self._lock:
                self._waiting.discard(found)

    def epoch(self, selection: Selection) -> int:
        """The newest checkpoint; -1 if there is none. Reads no file."""
        if selection.consistency is Consistency.LATEST:
            selection = Selection(consistency=Consistency.PREPARED)
        try:
            return self.reader.current(_now(selection)).version.checkpoint
        except JobFailed:
            return -1

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        if self._reader is not None:
            self._reader.close()

    def _follow(self) -> None:
        while not self._ending.is_set():
            began = self._clock.monotonic()
            try:
                reader = self._reader or Reader(
                    self.folder,
                    cache=self._cache,
                    clock=self._clock,
                    eager=True,
                    driven=True,
                    follow_every=FOLLOW_EVERY,
                )
                new = reader.follow() or self._reader is None
                self._reader, self._trouble = reader, ""
            except StreamworkError as error:
                self._failed(error.cause)
            except OSError as error:
                self._failed(str(error))
            else:
                if new:
                    self._notify()
                took = self._clock.monotonic() - began
                self._ending.wait(max(FOLLOW_EVERY, took * (1 / SHARE - 1)))

    def _failed(self, cause: str) -> None:
        """A job that was removed, or replaced, is opened again."""
        self._trouble = cause
        reader = self._reader
        if reader is not None:
            reader.problem = cause
            try:
                identity = open_store(self.folder.parent, self.folder.name).identity()
                if identity is None or identity.uid != reader.uid:
                    self._reader = None
            except (StreamworkError, OSError):
                self._reader = None
        self._ending.wait(WAIT_TO_OPEN)

    def _notify(self) -> None:
        with self._lock:
            for loop, event in self._waiting:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)


class Jobs:
    """The jobs that a server answers for: one, or all of a root. They are followed from the start if it is `eager`, else each from
    the first question about it on.
    """

    def __init__(self, root: Path, only: str | None = None, cache: Path | None = None, eager: bool = True) -> None:
        self.root = root
        self.only = None if only is None else check_name(only, "job")
        self._cache = cache
        self._followed: dict[str, Followed] = {}
        self._lock = threading.Lock()
        for name in self.names() if eager else ():
            self.get(name)

    def names(self) -> list[str]:
        if self.only is not None:
            return [self.only]
        return sorted(path.parent.name for path in self.root.glob("*/job.json"))

    def get(self, name: str | None = None) -> Followed:
        """A job by name; without a name, the only one there is. Refuses with SW-QUERY-JOB."""
        followed = self._followed.get(name or self.only or "")
        if followed is not None:
            return followed
        names = self.names()
        if name is None and len(names) == 1:
            name = names[0]
        if name is None or name not in names:
            known = f"this server knows: {', '.join(names[:20]) or 'none'}"
            raise WrongUse(
                "SW-QUERY-JOB",
                "which job?" if name is None else f"there is no job named {name[:80]!r}",
                f"{known}; begin the path with /jobs/NAME",
            )
        check_name(name, "job")
        with self._lock:
            if name not in self._followed:
                self._followed[name] = Followed(self.root / name, self._cache)
            return self._followed[name]

    def forget(self, name: str) -> None:
        """Stop following a job, until the next question about it."""
        with self._lock:
            followed = self._followed.pop(name, None)
        if followed is not None:
            followed.close()

    def close(self) -> None:
        for followed in self._followed.values():
            followed.close()


def _now(selection: Selection) -> Selection:
    return Selection(selection.at, selection.consistency, selection.at_least, 0.0)
