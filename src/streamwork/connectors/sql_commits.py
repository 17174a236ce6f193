"""The commits of a sink that appends to a table: which rows came with which checkpoint, so that the newest can be removed again.

    streamwork_commits   one row per commit of a sink: its number, position, manifest, how many rows it added, and a stamp, by which
                         the database finds rows that came later (`SqlSink`)

It changes in the transaction that changes the rows. The newest `KEPT` commits of a sink are kept. A table whose rows were changed
by others is found by the count: then it is not rewound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

TABLE = "streamwork_commits"
CREATE = (
    f"CREATE TABLE {TABLE} (uid TEXT NOT NULL, sink TEXT NOT NULL, number BIGINT NOT NULL, manifest_sha256 TEXT NOT NULL, "
    "added BIGINT NOT NULL, stamp BIGINT NOT NULL, PRIMARY KEY (uid, sink, number))"
)
KEPT = 100_000


class Commit(msgspec.Struct, frozen=True):
    number: int
    manifest_sha256: str
    added: int
    stamp: int


class Counted:
    """Counts the rows that pass through."""

    def __init__(self, staged: Iterator[pa.RecordBatch]) -> None:
        self._staged = staged
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._staged:
            self.rows += batch.num_rows
            yield batch


def split_at(commits: Sequence[Commit], manifest_sha256: str) -> tuple[Commit, Sequence[Commit]] | None:
    """The commit of a manifest and those after it. None if it is not recorded."""
    for place in range(len(commits) - 1, -1, -1):
        if commits[place].manifest_sha256 == manifest_sha256:
            return commits[place], commits[place + 1 :]
    return None
