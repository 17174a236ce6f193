"""Spark's daemon, the parent of the Python workers, with one difference: it and its workers survive SIGTERM.

A service manager that stops a job (systemd, a container runtime) sends SIGTERM to every process of the service. The driver then
completes the epoch under way, for which it needs its workers. They end with the JVM: it closes the daemon's standard input, and the
daemon hangs up on its workers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

from pyspark import daemon


def survive(number: int, frame: FrameType | None) -> None:
    """A handler, not SIG_IGN: programs that an operator starts do not inherit it."""


def surviving(number: int, handler: Any, install: Callable[[int, Any], Any] = signal.signal) -> Any:
    """`signal.signal`, except that SIGTERM is always survived."""
    return install(number, survive if number == signal.SIGTERM else handler)


def main() -> None:
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))  # processes of operators
    daemon.signal = SimpleNamespace(**{**vars(signal), "signal": surviving})
    daemon.manager()


if __name__ == "__main__":
    main()
