"""Waiting for an event, and not for a process that has ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 240.0
"""Seconds; far beyond the longest wait on a busy machine."""
_TICK = 0.02
_SHOWN = 3000


def wait_for(
    condition: Callable[[], Any],
    process: subprocess.Popen[Any] | None = None,
    log: Path | None = None,
    seconds: float = PATIENCE,
) -> None:
    """Wait until the condition is true. It fails at once if the process that should make it true has ended.

    The failure shows the output of the process: that of its `log`, or that of its pipes if it has ended.
    """
    until = time.monotonic() + seconds
    while not condition():
        code = process.poll() if process is not None else None
        if code is not None:
            if condition():  # by the last thing that the process did
                return
            raise AssertionError(f"the process has ended with exit code {code}:\n{_output(process, log)}")
        if time.monotonic() > until:
            raise AssertionError(f"not true after {seconds:.0f} s:\n{_output(process, log)}")
        time.sleep(_TICK)


def _output(process: subprocess.Popen[Any] | None, log: Path | None) -> str:
    if log is not None:
        return log.read_text(errors="replace")[-_SHOWN:]
    if process is None or process.poll() is None:
        return ""
    pipes = (pipe.read() for pipe in (process.stdout, process.stderr) if pipe is not None)
    return "\n".join(text if isinstance(text, str) else text.decode(errors="replace") for text in pipes)[-_SHOWN:]
