"""`Cache`: snapshots of state as Arrow IPC files, which are mapped, not read. Servers of one user share them.

CACHE/UID/COMPONENT/HASH.arrow        the rows of the snapshots of all instances
CACHE/UID/COMPONENT/HASH.hashes.npy   the hashes of their keys, in ascending order
CACHE/UID/COMPONENT/HASH.rows.npy     the row of each hash; written last, so that it makes the others count

HASH is made of the hashes of the snapshots and of the columns, so a file is never wrong, only unused: then it is removed. The cache
can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamwork.components.batches import joined
from streamwork.components.hashing import hash_columns
from streamwork.query.block import Block, Index
from streamwork.query.making import Maker, Snapshots
from streamwork.query.shape import Shape
from streamwork.state.files import STATE_FILE
from streamwork.world import Disk, FileRef

FORMAT = 1
KEEP = 3
"""Sets of snapshots that are kept of a component: the newest ones, and one that is being read at an older checkpoint."""
BATCH_ROWS = 1 << 20
SMALL = 20_000
"""Rows that are not worth a file."""


def default_folder() -> Path:
    """The user's cache folder: `$XDG_CACHE_HOME/streamwork/query`."""
    above = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(above) if above else Path.home() / ".cache") / "streamwork" / "query"


class Cache:
    """The cached snapshots of one job."""

    def __init__(self, folder: Path, uid: str, maker: Maker | None = None) -> None:
        """`maker` makes what is to be `prepare`d."""
        self._place, self._uid, self._maker = folder, uid, maker
        self._folder = folder / hashlib.sha256(uid.encode()).hexdigest()[:32]

    def prepare(self, job: Path, shape: Shape, defaults: Mapping[str, pa.Array], snapshots: Sequence[FileRef]) -> None:
        """Let another process do the work of `block`, and wait for it. If that is not possible, `block` does it."""
        if self._maker is not None and sum(ref.rows for ref in snapshots) > SMALL:
            plain = Shape(shape.component, shape.key, shape.schema, shape.name)
            self._maker.make(Snapshots(self._place, self._uid, job, plain, dict(defaults), tuple(snapshots)))

    def block(
        self, disk: Disk, job: Path, shape: Shape, defaults: Mapping[str, pa.Array], snapshots: Sequence[FileRef]
    ) -> Block:
        """The rows of snapshots, one for each instance, as a block. Refuses a file that is missing or damaged."""
        if sum(ref.rows for ref in snapshots) <= SMALL:
            tables = [shape.conform(self._table(ref.map(disk, job, STATE_FILE)), defaults) for ref in snapshots]
            return Block(shape, pa.concat_tables([shape.rows_schema.empty_table(), *tables]))
        name = _name(shape, defaults, snapshots)
        folder = self._folder / shape.component
        with contextlib.suppress(OSError, ValueError, pa.ArrowInvalid):
            return self._open(shape, folder, name)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write(disk, job, shape, defaults, snapshots, folder, name)
        pa.default_memory_pool().release_unused()  # of the rows that are in the file now
        block = self._open(shape, folder, name)
        self._remove_unused(folder)
        return block

    def _open(self, shape: Shape, folder: Path, name: str) -> Block:
        rows = np.load(folder / f"{name}.rows.npy", mmap_mode="r")
        hashes = np.load(folder / f"{name}.hashes.npy", mmap_mode="r")
        with pa.memory_map(str(folder / f"{name}.arrow")) as mapped:
            table = pa.ipc.open_file(mapped).read_all()
        if table.schema != shape.rows_schema or not len(rows) == len(hashes) == table.num_rows:
            raise ValueError("a file of another format")
        with contextlib.suppress(OSError):
            os.utime(folder / f"{name}.rows.npy")
        return Block(shape, table, Index(hashes, rows))

    def _write(
        self,
        disk: Disk,
        job: Path,
        shape: Shape,
        defaults: Mapping[str, pa.Array],
        snapshots: Sequence[FileRef],
        folder: Path,
        name: str,
    ) -> None:
        hashes = []
        with (
            _placed(folder / f"{name}.arrow") as path,
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, shape.rows_schema) as writer,
        ):
            for ref in snapshots:
                with pq.ParquetFile(pa.BufferReader(ref.map(disk, job, STATE_FILE)), pre_buffer=False) as file:
                    for group in range(file.num_row_groups):
                        table = shape.conform(file.read_row_group(group, use_threads=False), defaults)
                        for batch in joined(table.to_batches(), BATCH_ROWS):
                            keys = [batch.column(key) for key in shape.key]
                            hashes.append(hash_columns(keys, batch.num_rows))
                            writer.write_batch(batch)
        index = Index.of(np.concatenate(hashes))
        for suffix, values in (("hashes", index.hashes), ("rows", index.rows)):
            with _placed(folder / f"{name}.{suffix}.npy") as path, path.open("wb") as file:
                np.save(file, values)

    def _remove_unused(self, folder: Path) -> None:
        """Processes that have a file mapped keep it; one that is about to open it makes it again."""
        with contextlib.suppress(OSError):
            kept = sorted(folder.glob("*.rows.npy"), key=lambda path: path.stat().st_mtime, reverse=True)[:KEEP]
            names = {path.name.partition(".")[0] for path in kept}
            newest = min((path.stat().st_mtime for path in kept), default=0.0)
            for path in folder.iterdir():
                if path.name.partition(".")[0] not in names and path.stat().st_mtime < newest:
                    path.unlink(missing_ok=True)

    @staticmethod
    def _table(data: pa.Buffer) -> pa.Table:
        with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False) as file:
            groups = [file.read_row_group(group, use_threads=False) for group in range(file.num_row_groups)]
            return pa.concat_tables(groups) if groups else file.read(use_threads=False)


@contextlib.contextmanager
def _placed(path: Path) -> Any:
    """A temporary path that becomes `path` if the block ends well."""
    descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)
    os.close(descriptor)
    try:
        yield Path(made)
        Path(made).replace(path)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise


def _name(shape: Shape, defaults: Mapping[str, pa.Array], snapshots: Sequence[FileRef]) -> str:
    text = repr(
        (FORMAT, [ref.sha256 for ref in snapshots], str(shape.schema), {k: v.to_pylist() for k, v in defaults.items()})
    )
    return hashlib.sha256(text.encode()).hexdigest()[:32]
