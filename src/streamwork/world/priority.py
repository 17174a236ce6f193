"""Lowers the priority of background threads."""

from __future__ import annotations

import contextlib
import os
import threading

LOWEST = 19


def step_back() -> None:
    """Give the calling thread the lowest priority. Does nothing where threads have no priority of their own (not Linux)."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)
