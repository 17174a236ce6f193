"""Sends code to the executors of a cluster: this package, and the modules of the job's folder.

Only Python files are sent. Sources read their data by themselves; installed packages are expected on every machine.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
EPOCH_OF_ZIP = (1980, 1, 1, 0, 0, 0)
"""A fixed time, so that the same files give the same bytes."""


def ship(context: Any, folders: Iterable[Path]) -> None:
    """Put the package and the folders on the path of every worker, present and future. May be repeated."""
    archives = [pack(PACKAGE, PACKAGE.parent, "streamwork")]
    archives += [pack(folder, folder, "job") for folder in dict.fromkeys(map(Path.absolute, folders))]
    for archive in archives:
        if archive.name not in context._python_includes:
            context.addPyFile(str(archive))


def pack(folder: Path, base: Path, name: str) -> Path:
    """An archive of the Python files below a folder, named by what is in it."""
    files = {str(path.relative_to(base)): path.read_bytes() for path in _modules(folder)}
    digest = hashlib.sha256()
    for place, content in files.items():
        digest.update(f"{place}\0{len(content)}\0".encode() + content)
    target = _place() / f"{name}-{digest.hexdigest()[:16]}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, content in files.items():
            archive.writestr(zipfile.ZipInfo(place, EPOCH_OF_ZIP), content, zipfile.ZIP_DEFLATED)
    return target


@functools.cache
def _place() -> Path:
    """The folder from which the driver serves the archives."""
    folder = Path(tempfile.mkdtemp(prefix="streamwork-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _modules(folder: Path) -> Iterator[Path]:
    """Python files, without those of virtual environments and of folders that could not be packages."""
    for place, below, files in os.walk(folder):
        here = Path(place)
        below[:] = sorted(
            name for name in below if name.isidentifier() and name != "__pycache__" and not _is_environment(here / name)
        )
        yield from (here / name for name in sorted(files) if name.endswith(".py"))


def _is_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").exists()
