"""Signals that come while the package is being imported, which takes about a second. Imports nothing of ours.

The package imports this module first. In the process of ``streamwork run``, and only there, SIGINT and SIGTERM are then
remembered until the run itself listens (`run.stopping`), and the run ends as if they had come later.
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
    """Remember signals from now on, if this process is ``streamwork run``."""
    if not is_run(sys.argv, sys.orig_argv) or threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            _before[number] = signal.signal(number, _remember)


def release() -> tuple[list[int], dict[int, Any]]:
    """The signals that came, and the handlers from before `listen`. Called by the one that listens from now on."""
    heard, before = _heard.copy(), _before.copy()
    _heard.clear()
    _before.clear()
    return heard, before


def is_run(argv: Sequence[str], original: Sequence[str]) -> bool:
    """Whether the process was started as ``streamwork run`` or ``python -m streamwork run``."""
    if argv[1:2] != ["run"]:
        return False
    if argv[0] == "-m":  # Python says so while it imports the package of the module that it was asked for
        return COMMAND_MODULE in original
    return PurePath(argv[0]).name == "streamwork"


def _remember(number: int, frame: FrameType | None) -> None:
    _heard.append(number)


listen()
