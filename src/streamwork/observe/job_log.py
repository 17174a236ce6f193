"""Reads the log of a job (`run.job_log`), its newest failure with the traceback of the task, and new lines as they come."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from streamwork.epoch.job_folder import open_store
from streamwork.run.job_log import FOLDER, NAME, OLDER_FILES, Entry, older
from streamwork.world import Clock

LAST = 200
POLL_SECONDS = 0.25


class JobLogPage(msgspec.Struct, frozen=True, kw_only=True):
    """The newest entries of a log, oldest first."""

    job: str
    root: str
    file: str
    entries: tuple[Entry, ...]


def read_log(root: Path, job: str, last: int = LAST, errors: bool = False) -> JobLogPage:
    """The last entries; with `errors`, of those with level error. Lines that cannot be read are left out."""
    file = _file(root, job)
    found: list[Entry] = []
    for one in (file, *(older(file, number) for number in range(1, OLDER_FILES + 1))):
        if len(found) >= last:
            break
        with contextlib.suppress(OSError):
            mine = [entry for line in one.read_bytes().splitlines() if (entry := _entry(line)) is not None]
            found = [entry for entry in mine if entry.level == "error" or not errors] + found
    return JobLogPage(job=job, root=str(root), file=str(file), entries=tuple(found[-last:] if last else ()))


def read_failure(root: Path, job: str) -> Entry | None:
    """The newest failure: what failed in which component, instance and epoch, with the traceback of the task."""
    return next(iter(read_log(root, job, last=1, errors=True).entries), None)


def follow_log(root: Path, job: str, clock: Clock) -> Iterator[Entry | None]:
    """Entries that come from now on; None whenever there is nothing new for a while. Rotation is followed."""
    file = _file(root, job)
    at, inode, rest = (file.stat().st_size, file.stat().st_ino, b"") if file.exists() else (0, 0, b"")
    while True:
        with contextlib.suppress(OSError), file.open("rb") as source:
            if (number := os.fstat(source.fileno()).st_ino) != inode:
                if inode:
                    yield from _rest(older(file, 1), at, rest)
                at, inode, rest = 0, number, b""
            source.seek(at)
            found = source.read()
            at += len(found)
            *lines, rest = (rest + found).split(b"\n")
            for line in lines:
                if (entry := _entry(line)) is not None:
                    yield entry
        yield None
        clock.sleep(POLL_SECONDS)


def _rest(file: Path, at: int, begun: bytes) -> Iterator[Entry]:
    """What was written to a file before it was renamed."""
    with contextlib.suppress(OSError), file.open("rb") as source:
        source.seek(at)
        for line in (begun + source.read()).split(b"\n"):
            if (entry := _entry(line)) is not None:
                yield entry


def _file(root: Path, job: str) -> Path:
    return open_store(root, job).folder / FOLDER / NAME


def _entry(line: bytes) -> Entry | None:
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(line, type=Entry)
    return None
