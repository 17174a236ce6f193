"""Commands that need a job's code, run as processes of their own: this process never imports a job file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from streamwork.errors import JobFailed, Refused, WrongUse

CLASSES = {1: JobFailed, 2: WrongUse, 3: Refused}
"""Exit code -> the class of the error."""
MOST_SHOWN = 500


def printed(words: Sequence[str], timeout: float) -> Any:
    """What a command prints with --json. Its error is raised here."""
    command = [sys.executable, "-m", "streamwork", *words]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise JobFailed(
            "SW-CONSOLE-COMMAND",
            f"streamwork {words[0]} has not ended within {timeout:g} s, and was killed",
            "run the command in a terminal",
        ) from None
    try:
        found = msgspec.json.decode(done.stdout)
        if done.returncode == 0:
            return found
        error = found["error"]
        kind = CLASSES.get(done.returncode, JobFailed)
        raise kind(error["code"], error["cause"], error["action"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        last = done.stderr.decode(errors="replace").strip()[-MOST_SHOWN:]
        raise JobFailed(
            "SW-CONSOLE-COMMAND",
            f"streamwork {words[0]} has ended with {done.returncode}: {last or 'it printed nothing'}",
            "run the command in a terminal",
        ) from None
