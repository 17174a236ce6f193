"""Short pauses, for a process that answers events within milliseconds (live mode)."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SWITCH_SECONDS = 0.000_5
"""How long a thread that wants to run Python waits for another one. The default is 5 ms: so long would events wait for the thread
that writes a checkpoint.
"""


@contextmanager
def short_pauses() -> Iterator[None]:
    """Threads take turns more often inside the block. For the main program of a process: the setting is that of the process."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
        gc.unfreeze()


def keep_loaded() -> None:
    """Modules, operators and state are loaded: later garbage collections do not walk through them, which takes tens of
    milliseconds. Inside `short_pauses`, which ends it.
    """
    gc.freeze()
