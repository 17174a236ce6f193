"""Standard output that never raises because of what is printed."""

from __future__ import annotations

import io
import sys


def print_anything() -> None:
    """Let standard output and standard error write characters that their encoding does not have as escapes, from now on."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
