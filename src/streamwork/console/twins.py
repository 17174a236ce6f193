"""The command lines that print what a page shows."""

from __future__ import annotations

import shlex
from pathlib import Path


def console(root: Path) -> str:
    return shlex.join(["streamwork", "console", str(root)])


def overview(root: Path) -> str:
    return _line("status", root, "--json")


def about(root: Path, job: str, *command: object) -> str:
    """Of a command about a job: ``about(root, job, "status", "--graph")``."""
    first, *rest = command
    words = str(first).split()
    return _line(*words, "--root", root, job, *rest, "--json")


def _line(*words: object) -> str:
    return shlex.join(["streamwork", *map(str, words)])
