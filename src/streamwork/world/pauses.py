"""Short pauses, for a process that answers within milliseconds (live mode, servers)."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SWITCH_SECONDS = 0.000_5
"""How long a thread that wants to run Python waits for another one. The default is 5 ms: so long would events wait for the thread
that writes a checkpoint, and requests for the one that reads it.
"""


class _Turns:
    """The setting is that of the process: several blocks may need it at a time, and the last one to end restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._before = 0.0

    def begin(self) -> None:
        with self._lock:
            if not self._blocks:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, SWITCH_SECONDS))
            self._blocks += 1

    def end(self) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks:
                sys.setswitchinterval(self._before)


_turns = _Turns()


@contextmanager
def short_turns() -> Iterator[None]:
    """Threads take turns more often inside the block."""
    _turns.begin()
    try:
        yield
    finally:
        _turns.end()


@contextmanager
def short_pauses() -> Iterator[None]:
    """Short turns, and an end of `keep_loaded`. For the main program of a process."""
    with short_turns():
        try:
            yield
        finally:
            gc.unfreeze()


def keep_loaded() -> None:
    """Modules, operators and state are loaded: later garbage collections do not walk through them, which takes tens of
    milliseconds. Inside `short_pauses`, which ends it.
    """
    gc.freeze()
