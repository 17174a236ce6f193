"""Standard output that never raises an encoding error."""

from __future__ import annotations

import io
import sys


def print_anything() -> None:
    """Let standard output and standard error escape characters that their encoding does not have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
