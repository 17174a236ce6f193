"""Resolves names that are read from files inside a folder. A name that leads outside is refused before it is used."""

from __future__ import annotations

import os
from pathlib import Path

from streamwork.errors import Refused


def check_relative(name: str) -> str:
    """The name, if it is a plain relative path. Raises ValueError: decoders report it as they report any wrong value."""
    parts = name.split("/")
    if "\0" in name or "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{name!r} is not a path inside the job's folder")
    return name


def inside(folder: Path, name: str) -> Path:
    """The path of a name below a folder. Refuses absolute names, `..`, and links that lead out of the folder."""
    try:
        path = folder / check_relative(name)
    except ValueError as error:
        raise _outside(folder, str(error)) from None
    top = os.path.realpath(folder)
    if os.path.commonpath([top, os.path.realpath(path)]) != top:
        raise _outside(folder, f"{name!r} is a link that leads out of it")
    return path


def _outside(folder: Path, what: str) -> Refused:
    return Refused(
        "SW-PATH-OUTSIDE",
        f"{folder}: {what}",
        "restore the folder from a backup, or replace the link by its target; nothing outside the folder was read or written",
    )
