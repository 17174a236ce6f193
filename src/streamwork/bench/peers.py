"""Peers in Python environments of their own, which are made once, in a cache folder, from pinned lists."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streamwork
from streamwork.bench.epochs import Array

MAKE_SECONDS = 1_200


class Unavailable(Exception):
    """The peer cannot be installed or run here, for the given reason."""


class PeerTime(msgspec.Struct):
    """What a peer has measured of itself."""

    seconds: float
    cpu: float


class Bytewax:
    """Bytewax: one process per epoch, which starts with empty state; its start-up time is not counted."""

    def __init__(self, folder: Path, program: str, seconds: float) -> None:
        """`program` is a file in benchmarks/peers/bytewax. An epoch may take at most `seconds`. Raises Unavailable."""
        self._home = peer_folder("bytewax")
        self._program = self._home / program
        self._python = environment("bytewax", self._home / "requirements.txt")
        self._folder = folder
        self._seconds = seconds
        folder.mkdir(parents=True)

    def run(self, *inputs: pa.RecordBatch, options: Sequence[str] = ()) -> tuple[PeerTime, pa.Table]:
        """The time taken, and the output."""
        output, files = self._folder / "output.parquet", list[Path]()
        for number, batch in enumerate(inputs):
            files.append(self._folder / f"input-{number}.parquet")
            pq.write_table(pa.Table.from_batches([batch]), files[-1])
        command = [str(one) for one in (self._python, self._program, *files, output, *options)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=self._seconds, check=False)
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"no epoch of {sum(one.num_rows for one in inputs)} events in {self._seconds:.0f} s"
            ) from None
        if done.returncode:
            raise Unavailable(f"it failed: {done.stderr.decode(errors='replace').strip().splitlines()[-1:]}")
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=PeerTime), pq.read_table(output)


def peer_folder(name: str) -> Path:
    """The folder of a peer's program and its list of packages, in the installed package or in the repository."""
    package = Path(streamwork.__file__).parent
    for home in (package / "_benchmarks" / "peers" / name, package.parents[1] / "benchmarks" / "peers" / name):
        if home.exists():
            return home
    raise Unavailable(f"benchmarks/peers/{name} is missing")


def environment(name: str, requirements: Path) -> Path:
    """The Python of an environment with these packages, which is made if it does not exist."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamwork" / "peers"
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    home = cache / f"{name}-{digest}"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(home)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)],
        ):
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=MAKE_SECONDS)
            except (OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", None) or b""
                last = said.decode(errors="replace").strip().splitlines()[-1:]
                raise Unavailable(f"its environment could not be made: {last[0] if last else error}") from None
        (home / "complete").touch()
    return python


def packages(name: str) -> Path:
    """The folder of packages that a peer needs in Spark's own workers. Raises Unavailable."""
    python = environment(name, peer_folder(name) / "requirements.txt")
    return next((python.parents[1] / "lib").glob("python*/site-packages"))


def by_number(table: pa.Table, names: list[str]) -> tuple[Array, Array]:
    """(count, total) of each key, in the order of `names`; zero for a missing key."""
    place = dict(zip(table["card"].to_pylist(), range(table.num_rows), strict=True))
    rows = np.array([place.get(name, -1) for name in names])
    there = rows >= 0
    return (
        np.where(there, table["count"].to_numpy()[rows], 0),
        np.where(there, table["total"].to_numpy()[rows], 0.0),
    )
