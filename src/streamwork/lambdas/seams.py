"""`Seams`: how far each batch run counts, and which run the view shows. Files in the folder of the
streaming job, below `lambda`:

    claims/RUN.json   before a batch run reads anything: it counts up to this checkpoint of the streaming job
    view/RUN.json     the run is complete: the view shows it. Created once; the highest number counts
    runs/RUN/         the root of the run

A seam is a checkpoint of the streaming job, never a time: its positions are where the batch run ends, and where what the
streaming job keeps separately begins.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from streamwork.components import Position
from streamwork.epoch.sealed import read_sealed, to_bytes
from streamwork.errors import Refused
from streamwork.world import Disk, FileKind

FOLDER = "lambda"
"""In the folder of the streaming job."""
CLAIMS, VIEW, RUNS = "claims", "view", "runs"
_FILE = re.compile(r"(\d{6})\.json")


class Seam(msgspec.Struct, frozen=True):
    """Where a batch run ends and the streaming job goes on."""

    run: int
    epoch: int  # the checkpoint of the streaming job
    fence: int
    uid: str  # of the streaming job
    positions: Position
    begins: dict[str, int]  # where the input began when the run was claimed, by SOURCE/PARTITION
    claimed: float  # when, in seconds since 1970
    seal: str = ""


class Flip(msgspec.Struct, frozen=True):
    """A batch run is complete."""

    run: int
    job: str  # the folder of its job, below its root
    uid: str  # of that job
    completed: float
    seconds: float
    events: int
    seal: str = ""


@dataclass(frozen=True)
class Seams:
    """What the folder says."""

    claims: Mapping[int, int]  # run -> checkpoint
    flips: tuple[int, ...]  # runs, in ascending order

    @property
    def shown(self) -> int | None:
        """The run that the view shows."""
        return self.flips[-1] if self.flips else None

    @cached_property
    def done(self) -> int:
        """The checkpoint up to which no view needs partial aggregates: the seam before the one that is shown, since a
        reader may still be at that one.
        """
        return min(self.claims.get(run, 0) for run in self.flips[-2:]) if len(self.flips) > 1 else 0

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The checkpoints that divide what is kept: behind each of them, new rows of partial aggregates begin."""
        return tuple(sorted({epoch for epoch in self.claims.values() if epoch > self.done}))

    @property
    def next_run(self) -> int:
        return max((*self.claims, *self.flips, 0)) + 1


LAMBDA_FILE = FileKind(
    "SW-LAMBDA-DAMAGED", "start another batch run: `streamwork lambda run job.py`; the view then goes on with that one"
)
T = TypeVar("T", bound=msgspec.Struct)


class SeamFolder:
    """The folder of a lambda."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self.disk = disk
        self.folder = folder
        self._claims: dict[int, int] = {}  # claims never change

    def look(self) -> Seams:
        """What there is now. A claim that cannot be read divides nothing: readers find that out (`lambdas.merging`)."""
        for run in _runs(self.disk, self.folder / CLAIMS):
            if run not in self._claims:
                with contextlib.suppress(Refused):
                    self._claims[run] = self.seam(run).epoch
        return Seams(dict(self._claims), tuple(sorted(_runs(self.disk, self.folder / VIEW))))

    def claim(self, seam: Seam) -> None:
        """Raises FileExistsError if the run was claimed meanwhile."""
        self.disk.make_folder(self.folder / CLAIMS)
        self.disk.create(_file(self.folder / CLAIMS, seam.run), to_bytes(seam))

    def seam(self, run: int) -> Seam:
        return read_sealed(self.disk, _file(self.folder / CLAIMS, run), Seam, LAMBDA_FILE)

    def flip(self, flip: Flip) -> None:
        """Let the view show a run: one file is created, whole or not at all."""
        self.disk.make_folder(self.folder / VIEW)
        self.disk.create(_file(self.folder / VIEW, flip.run), to_bytes(flip))

    def shown(self, run: int) -> Flip:
        return read_sealed(self.disk, _file(self.folder / VIEW, run), Flip, LAMBDA_FILE)

    def root(self, run: int) -> Path:
        """The root of a batch run."""
        return self.folder / RUNS / f"{run:06d}"

    def remove_old(self) -> list[int]:
        """Remove the roots of runs that no reader needs: those before the one that was shown before the newest."""
        flips, removed = self.look().flips, []
        if len(flips) > 1:
            for name in self.disk.names(self.folder / RUNS):
                if name.isdigit() and int(name) < flips[-2]:
                    self.disk.remove_tree(self.folder / RUNS / name)
                    removed.append(int(name))
        return removed


def _runs(disk: Disk, folder: Path) -> list[int]:
    return [int(found[1]) for name in disk.names(folder) if (found := _FILE.fullmatch(name))]


def _file(folder: Path, run: int) -> Path:
    return folder / f"{run:06d}.json"
