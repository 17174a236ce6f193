"""Work that can wait, on cores that others need more."""

from __future__ import annotations

import contextlib
import os
import threading

LOWEST = 19


def step_back() -> None:
    """Let the calling thread run when nobody else wants to; where threads have a priority of their own (Linux), else do nothing."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)
