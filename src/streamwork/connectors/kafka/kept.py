"""Clients that stay open between calls, per process: a new one needs connections and metadata, which costs milliseconds.

A client is borrowed, used by one thread, and given back. One that has failed is not given back. A process that was forked does
not use those of its parent.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

MOST = 64
"""Maximum number of clients that wait. Each has some threads and a connection to each broker."""
IDLE_SECONDS = 120.0
"""A client that waits for longer is closed, when another one is given back."""


class Kept:
    def __init__(self, close: Callable[[Any], None]) -> None:
        self._close = close
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._waiting: dict[Hashable, tuple[float, Any]] = {}  # oldest first
        self._inherited: list[
            Any
        ] = []  # of a parent process: closing them here would wait for threads that do not exist
        atexit.register(self.close)

    def take(self, key: Hashable) -> Any:
        """The client that waits under this key; None if there is none."""
        with self._lock:
            self._check_process()
            return self._waiting.pop(key, (0.0, None))[1]

    def give(self, key: Hashable, client: Any) -> None:
        now = time.monotonic()
        with self._lock:
            self._check_process()
            before = self._waiting.pop(key, None)
            self._waiting[key] = (now, client)
            old = [before[1]] if before is not None else []
            for name, (since, other) in list(self._waiting.items()):
                if len(self._waiting) <= MOST and now - since < IDLE_SECONDS:
                    break
                del self._waiting[name]
                old.append(other)
        for one in old:
            self._end(one)

    def close(self) -> None:
        """Close all that wait."""
        with self._lock:
            self._check_process()
            waiting, self._waiting = self._waiting, {}
        for _, client in waiting.values():
            self._end(client)

    def _end(self, client: Any) -> None:
        with contextlib.suppress(Exception):
            self._close(client)

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._inherited += [client for _, client in self._waiting.values()]
            self._process, self._waiting = os.getpid(), {}
