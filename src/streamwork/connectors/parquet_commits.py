"""Which rows of a ParquetSink came with which checkpoint, so that the newest can be removed again.

The ledger of a folder has the number of its rows, and after which row each of its checkpoints ended: rows are only added at the
end, also where files are merged. So a sink is rewound by folders that go, and one that is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from streamwork.components import Position

LEDGER = "_ledger.json"
KEPT = 1_000
"""The commits that a ledger names, in each folder: those before them cannot be rewound to."""
UNKNOWN = -1


class Commit(msgspec.Struct, frozen=True, array_like=True):
    manifest_sha256: str
    rows: int  # of the folder, after this commit


Commits = tuple[Commit, ...]


class Ledger(msgspec.Struct, frozen=True):
    """`_ledger.json` of a folder."""

    uid: str
    sink: str
    position: Position
    fence: int
    manifest_sha256: str
    last: int = 0  # the highest checkpoint number in the folder; 0: that of the folder
    rows: int = UNKNOWN  # of the folder
    commits: Commits = ()  # of the folder, as far as they are known


class Folder(msgspec.Struct, frozen=True):
    """A folder as its ledger describes it, and as it is."""

    number: int
    rows: int  # as its ledger has it; UNKNOWN: an older version wrote it
    commits: Commits
    found: int  # rows of its files
    others: Sequence[str]  # files that the sink has not written


class Cut(msgspec.Struct, frozen=True):
    """What is to be removed: all rows behind a commit."""

    number: int  # of the folder that the commit is in
    commits: Commits  # that stay in it
    cuts: bool  # the folder has rows behind the commit
    later: tuple[int, ...]  # folders that go, newest first
    removed: int  # rows

    @property
    def rows(self) -> int:
        return self.commits[-1].rows


def noted(before: Commits, manifest_sha256: str, rows: int) -> Commits:
    return (*before, Commit(manifest_sha256, rows))[-KEPT:] if rows != UNKNOWN else ()


def cut(newest_first: Iterable[Folder], manifest_sha256: str) -> Cut | str:
    """What to remove so that the commit of this manifest is the last one; or why that cannot be."""
    later: list[int] = []
    removed = 0
    for folder in newest_first:
        if folder.rows == UNKNOWN:
            return "it was written by a version that did not record which rows came with which checkpoint"
        if folder.others:
            return f"others have put {folder.others[0]} into it"
        if folder.found != folder.rows:
            return f"epoch={folder.number} had {folder.rows:,} rows, and has {folder.found:,}: others have changed it"
        for place in range(len(folder.commits) - 1, -1, -1):
            if folder.commits[place].manifest_sha256 == manifest_sha256:
                kept = folder.commits[: place + 1]
                behind = folder.rows - kept[-1].rows
                return Cut(folder.number, kept, behind > 0, tuple(later), removed + behind)
        later.append(folder.number)
        removed += folder.rows
    return "it has no record of that checkpoint, which is too old or was written by an older version"


def first_rows(path: Path, count: int) -> Iterable[pa.RecordBatch]:
    """The rows at the beginning of a file."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(use_threads=False):
            if count <= 0:
                return
            yield batch.slice(0, count)
            count -= batch.num_rows
