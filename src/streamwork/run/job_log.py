"""The log of a job: what its drivers did and what went wrong, as JSON lines in the job's folder.

    logs/job.jsonl      the newest lines
    logs/job.N.jsonl    older ones; the highest number is the oldest

It is information only: nothing depends on it, and a line that cannot be written is left out. The size is bounded: a full file is
renamed, and the oldest is removed. Lines of a driver that has not claimed the job yet are kept back until it has, so that a
standby writes nothing; a driver that has lost the job to another one no longer writes.
"""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import msgspec

from streamwork.epoch import Manifest, Phase
from streamwork.errors import StreamworkError, described, writable
from streamwork.wording import plural
from streamwork.world import Clock

FOLDER, NAME = "logs", "job.jsonl"
MOST_BYTES = 2_000_000
"""Of one file."""
OLDER_FILES = 3
MOST_KEPT_BACK = 100
PROGRESS_SECONDS = 60.0
"""Shortest time between two lines about completed checkpoints in the file."""
PRINTED_SECONDS = 1.0
"""The same for those that are passed on."""
_SECRETS = (
    (re.compile(r"(\w+://[^\s:/@]*:)[^\s/@]+@"), r"\1***@"),
    (re.compile(r"(?i)((?:password|passwd|pwd|secret|token|api_?key)['\"]?\s*[=:]\s*['\"]?)[^\s'\",;&)]+"), r"\1***"),
    (re.compile(r"(?i)(authorization['\"]?\s*[=:]\s*['\"]?(?:bearer|basic)\s+)[^\s'\",;]+"), r"\1***"),
)


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the log."""

    time: datetime
    level: str  # info, warning, error
    job: str
    message: str
    fence: int = 0  # of the driver; 0: it has not claimed the job
    epoch: int | None = None
    component: str = ""
    instance: int | None = None
    code: str = ""
    cause: str = ""
    action: str = ""
    traceback: str = ""  # of the task that failed
    logger: str = ""  # of a message that came by Python's `logging`


def shown(text: str) -> str:
    """The text without passwords and tokens, as far as they can be recognised."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return writable(text)


class JobLog:
    """Writes the log of one job. May be called from any thread."""

    def __init__(self, folder: Path, job: str, clock: Clock, also: Callable[[Entry], None] | None = None) -> None:
        """`folder` is that of the job; `also` receives every entry, at once; of completed checkpoints
        at most one a second.
        """
        self._file = folder / FOLDER / NAME
        self._folder, self._job, self._clock, self._also = folder, job, clock, also
        self._fence = 0
        self._kept_back: list[Entry] = []
        self._told = self._printed = float("-inf")
        self._events = 0

    def started(self, fence: int, message: str) -> None:
        self._claimed(fence)
        self.note(message)

    def _claimed(self, fence: int) -> None:
        """A driver has claimed the job."""
        if not fence:
            return
        self._fence = fence
        kept, self._kept_back = self._kept_back, []
        for entry in kept:
            self._append(entry)

    def note(
        self, message: str, level: str = "info", logger: str = "", trace: str = "", epoch: int | None = None
    ) -> None:
        self._take(self._entry(level, message, logger=logger, traceback=shown(trace), epoch=epoch))

    def failed(self, error: BaseException, fence: int) -> None:
        """A driver has failed; `fence` is 0 if it had not claimed the job."""
        self._claimed(fence)
        if not isinstance(error, StreamworkError):
            trace = "".join(traceback.format_exception(error))
            self._take(self._entry("error", described(error), traceback=shown(trace)))
            return
        component, _, instance = error.raised_in.rstrip("]").partition("[")
        entry = self._entry(
            "error",
            f"{error.code}: {error.cause}",
            epoch=error.in_epoch,
            component=component or error.component,
            instance=int(instance) if instance.isdigit() else None,
            code=error.code,
            cause=shown(error.cause),
            action=shown(error.action),
            traceback=shown(error.full_trace()),
        )
        self._take(entry)

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None:
        if phase is Phase.ABANDON:
            self.note(f"epoch {epoch} was abandoned", "warning", epoch=epoch)
        if phase is Phase.COMPLETE and manifest is not None:
            self._events += manifest.events
            entry = self._entry(
                "info", f"checkpoint {epoch} completed, {plural(self._events, 'event')} so far", epoch=epoch
            )
            now = self._clock.monotonic()
            if self._also is not None and now >= self._printed + PRINTED_SECONDS:
                self._printed = now
                self._also(entry)
            if now >= self._told + PROGRESS_SECONDS:
                self._told = now
                self._append(entry)

    @contextlib.contextmanager
    def of_python(self) -> Iterator[None]:
        """Also take what this process logs by Python's `logging`."""
        handler, root = _Handler(self), logging.getLogger()
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)

    @property
    def is_printed(self) -> bool:
        return self._also is not None

    def _entry(self, level: str, message: str, **more: object) -> Entry:
        now = datetime.fromtimestamp(self._clock.now(), UTC)
        return Entry(time=now, level=level, job=self._job, message=shown(message), fence=self._fence, **more)  # type: ignore[arg-type]

    def _take(self, entry: Entry) -> None:
        if self._also is not None:
            self._also(entry)
        if self._fence:
            self._append(entry)
        elif len(self._kept_back) < MOST_KEPT_BACK:
            self._kept_back.append(entry)

    def _append(self, entry: Entry) -> None:
        if (self._folder / "fences" / f"{self._fence + 1}.json").exists():  # another driver has the job
            return
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(exist_ok=True)
            if self._file.exists() and self._file.stat().st_size >= MOST_BYTES:
                self._rotate()
            with self._file.open("ab", buffering=0) as file:
                file.write(msgspec.json.encode(entry) + b"\n")

    def _rotate(self) -> None:
        files = [self._file, *(older(self._file, number) for number in range(1, OLDER_FILES + 1))]
        for newer, place in reversed(list(pairwise(files))):
            if newer.exists():
                newer.replace(place)


def older(file: Path, number: int) -> Path:
    return file.with_name(f"{file.stem}.{number}{file.suffix}")


class _Handler(logging.Handler):
    """Where nothing else is configured, warnings are printed as Python does by default."""

    def __init__(self, log: JobLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
            level = "error" if record.levelno >= logging.ERROR else record.levelname.lower()
            self._log.note(record.getMessage(), level, record.name, trace)
        except Exception:
            self.handleError(record)
        alone = len(logging.getLogger().handlers) == 1
        if alone and not self._log.is_printed and logging.lastResort is not None:
            logging.lastResort.handle(record)
