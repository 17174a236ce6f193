"""Mailboxes: messages from one process to others, as lines of a file that only grows.

A mailbox has one writer and any number of readers. Messages come in order, each once for each reader. Nothing is durable: what
they say counts for one gang of tasks, which ends with the processes. So the files do not go through the `Disk`.
"""

from __future__ import annotations

import os
from pathlib import Path


class MailWriter:
    """Appends messages. May be used by several threads of one process: each message is one write."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def send(self, message: bytes) -> None:
        """`message` has no line break."""
        assert b"\n" not in message
        view = memoryview(message + b"\n")
        written = os.write(self._descriptor, view)
        while written < len(view):  # the disk is full, or the message is larger than one write takes
            written += os.write(self._descriptor, view[written:])

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class MailReader:
    """Reads the messages of one mailbox, also of one that does not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._rest = b""

    def receive(self) -> list[bytes]:
        """The messages that have come since the last call."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return []
        found = b""
        while piece := os.read(self._descriptor, 1 << 16):
            found += piece
        if not found:
            return []
        *lines, self._rest = (self._rest + found).split(b"\n")
        return lines

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
