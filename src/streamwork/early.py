"""Records signals that arrive while the package is being imported, which takes about a second.

The package imports this module first. In the process of ``streamwork run``, and only there, SIGINT and SIGTERM are recorded until
the run installs its own handlers (`run.stopping`); the run then stops as if they had arrived later.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import PurePath
from types import FrameType
from typing import Any

COMMAND_MODULE = "streamwork"

_heard: list[int] = []
_before: dict[int, Any] = {}


def listen() -> None:
    """Record signals from now on, if this process is ``streamwork run``."""
    if not is_run(sys.argv, sys.orig_argv) or threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            _before[number] = signal.signal(number, _remember)


def release() -> tuple[list[int], dict[int, Any]]:
    """The recorded signals, and the handlers from before `listen`. Called when other handlers have been installed."""
    heard, before = _heard.copy(), _before.copy()
    _heard.clear()
    _before.clear()
    return heard, before


def is_run(argv: Sequence[str], original: Sequence[str]) -> bool:
    """Whether the process was started as ``streamwork run`` or ``python -m streamwork run``."""
    if argv[1:2] != ["run"]:
        return False
    if argv[0] == "-m":  # sys.argv[0] while Python imports the package of the module to run
        return COMMAND_MODULE in original
    return PurePath(argv[0]).name == "streamwork"


def _remember(number: int, frame: FrameType | None) -> None:
    _heard.append(number)


listen()
