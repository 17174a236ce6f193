"""Temporary names of files that are being written. A crash leaves some behind; a later start removes those, and no others.

A writer holds a lock of the operating system on its file until the file has its final name. The lock ends with the process,
also after a crash. So a temporary file that can be locked has no writer.

    the writer                                           clean-up
    1  create the temporary name                         a  list the names
    2  lock it; if that fails, or if the name was        b  lock the file; skip it if another process has the lock
       removed, return to 1                              c  remove the name
    3  write, sync
    4  rename it, or link it to the final name
    5  remove the temporary name, unlock

A file that is removed between 1 and 2 has no content yet: the writer begins again. Between 2 and 5 step b fails. After 5 step c
finds nothing: names are random and not used twice. On a file system without locks nothing is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

PREFIX = ".tmp-"
_NAME = re.compile(r"\.tmp-[0-9a-f]{12}")


@contextlib.contextmanager
def temporary(folder: Path) -> Iterator[tuple[Path, int]]:
    """A new file in a folder, and its descriptor. When the block ends, the name is removed and the descriptor is closed."""
    path, descriptor = _created(folder)
    try:
        yield path, descriptor
    finally:
        path.unlink(missing_ok=True)  # 5
        os.close(descriptor)


def _created(folder: Path) -> tuple[Path, int]:
    while True:
        path = folder / f"{PREFIX}{secrets.token_hex(6)}"
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o644)  # 1
        if _lock(descriptor, without=True) and os.fstat(descriptor).st_nlink:  # 2
            return path, descriptor
        path.unlink(missing_ok=True)
        os.close(descriptor)


def remove_abandoned(folder: Path, below: bool) -> None:
    """Remove the temporary files in a folder, and with `below` in its subfolders, that no process writes. Links to other
    folders are not followed.
    """
    for place, folders, names in os.walk(folder):
        for name in names:  # a
            if _NAME.fullmatch(name):
                _remove_if_abandoned(Path(place, name))
        if not below:
            folders.clear()


def _remove_if_abandoned(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # removed meanwhile, or not a regular file
        return
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and _lock(descriptor, without=False):  # b
            # It may be gone meanwhile, or be in a read-only folder: clean-up never fails a job.
            with contextlib.suppress(OSError):
                path.unlink()  # c
    finally:
        os.close(descriptor)


def _lock(descriptor: int, without: bool) -> bool:
    """Try to lock the file. True if this process now has the lock; `without` is the result on a file system without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return without
    return True
