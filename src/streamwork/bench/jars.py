"""Jars that peers need, fetched once by Maven coordinates, with the Ivy that is inside the package `pyspark`.

`IVY_SETTINGS` in the environment names a settings file, for a mirror.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from streamwork.bench.peers import Unavailable, peer_folder
from streamwork.hosts.java import find_java

SECONDS = 600


def jars(peer: str) -> list[Path]:
    """Those that the peer's `ivy.xml` names. Raises Unavailable if they cannot be had."""
    wanted = peer_folder(peer) / "ivy.xml"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamwork" / "peers"
    home = cache / f"{peer}-jars-{hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]}"
    if not home.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as name:
            shutil.move(_fetch(wanted, Path(name)), home)
    return sorted(home.glob("*.jar"))


def _fetch(wanted: Path, work: Path) -> Path:
    command = [
        str(find_java().home / "bin" / "java"),
        "-jar",
        str(_ivy()),
        "-ivy",
        str(wanted),
        "-cache",
        str(work / "c"),
    ]
    command += ["-retrieve", str(work / "jars" / "[artifact]-[revision].[ext]")]
    if settings := os.environ.get("IVY_SETTINGS"):
        command += ["-settings", settings]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"its jars were not fetched in {SECONDS} s") from None
    if done.returncode or not (work / "jars").exists():
        raise Unavailable(f"its jars cannot be fetched: {(done.stdout + done.stderr).strip()[-300:]}")
    return work / "jars"


def _ivy() -> Path:
    package = find_spec("pyspark")
    assert package is not None and package.submodule_search_locations, "pyspark is a dependency of the project"
    found = sorted((Path(package.submodule_search_locations[0]) / "jars").glob("ivy-*.jar"))
    if not found:
        raise Unavailable("the package pyspark has no Ivy, with which jars are fetched")
    return found[-1]
