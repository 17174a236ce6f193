"""`Following`: what a job's folder says at this moment. It only reads, and adds no work to the driver.

A look lists two folders. Manifests are decoded once: their names are never used again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from streamwork.components import Record, parquet_file
from streamwork.epoch.job_folder import open_store
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.savepoints.graph_record import GraphRecord
from streamwork.epoch.savepoints.record import GRAPH
from streamwork.epoch.sealed import read_sealed
from streamwork.epoch.start_records import StartRecord, StartRecords
from streamwork.epoch.store import CHECKPOINT_FILE, Store
from streamwork.errors import Refused
from streamwork.query.shape import Shape, shape_of, stateful
from streamwork.state.sql_views import FOLDER as VIEWS


@dataclass(frozen=True)
class Known:
    """The shape of a component, and the defaults of fields that its older rows lack."""

    shape: Shape
    defaults: Mapping[str, pa.Array]


@dataclass(frozen=True)
class Look:
    """What counts: manifests by number, the newest first."""

    manifests: tuple[Manifest, ...]
    completed: frozenset[int]
    written: Mapping[int, float]
    starts: Mapping[int, StartRecord]
    dropped: Mapping[str, int]  # component -> the fence whose start dropped its state
    known: Mapping[str, Known]
    problems: tuple[str, ...] = ()

    def counts(self, manifest: Manifest) -> bool:
        """Not if it lies beyond the start of a later fence: its driver had lost the job."""
        later = next((start for fence, start in sorted(self.starts.items()) if fence > manifest.fence > 0), None)
        return later is None or manifest.epoch <= later.epoch

    def newest(self, prepared: bool) -> Manifest | None:
        return next((one for one in self.manifests if prepared or one.epoch in self.completed), None)


@dataclass
class Following:
    """The folder of one job."""

    store: Store
    types: Mapping[str, type[Record]] = field(default_factory=dict)
    _seen: object = None
    _manifests: dict[tuple[int, int], Manifest] = field(default_factory=dict)
    _graph: tuple[object, dict[str, Known]] = (None, {})

    @classmethod
    def of(cls, folder: Path, types: Mapping[str, type[Record]]) -> Following:
        """Refuses a folder in which no job has run (SW-ROOT-EMPTY)."""
        return cls(open_store(folder.parent, folder.name), types)

    def look(self) -> Look | None:
        """What there is now; None if nothing has changed since the last look."""
        disk, folder = self.store.disk, self.store.folder
        seen = (
            tuple(disk.names(folder / "checkpoints")),
            tuple(name for name in disk.names(folder / "fences") if name.endswith((".start.json", ".dropped.json"))),
            _signature(folder / GRAPH),
        )
        if seen == self._seen:
            return None
        starts = StartRecords(disk, folder / "fences")
        look = self._read(seen[2], starts)
        self._seen = seen
        return look

    def forget(self) -> None:
        """Read again at the next look."""
        self._seen = None

    def _read(self, graph: object, starts: StartRecords) -> Look:
        completed = set(self.store.completed())
        found, written, problems = [], {}, []
        for epoch in sorted(completed | set(self.store.prepared()), reverse=True):
            try:
                written[epoch] = self.store.written_at(epoch)
                manifest = self._manifests.get((epoch, int(written[epoch] * 1e6)))
                found.append(manifest or self.store.manifest(epoch))
            except (StopIteration, OSError):
                continue  # pruned meanwhile
            except Refused as damaged:
                problems.append(damaged.cause)
        self._manifests = {(one.epoch, int(written[one.epoch] * 1e6)): one for one in found}
        parents = {one.parent_sha256 for one in found}
        completed |= {one.epoch for one in found if one.sha256 in parents}
        if graph != self._graph[0] or not self._graph[1]:
            self._graph = (graph, self._known())
        whole = Look(tuple(found), frozenset(completed), written, starts.all(), starts.dropped_by(), self._graph[1])
        counting = sorted((one for one in found if whole.counts(one)), key=lambda one: one.age, reverse=True)
        return replace(whole, manifests=tuple(counting), problems=tuple(problems))

    def _known(self) -> dict[str, Known]:
        disk, folder = self.store.disk, self.store.folder
        if not disk.exists(folder / GRAPH):
            raise Refused(
                "SW-QUERY-GRAPH",
                f"{folder / GRAPH} does not exist: the job was last started by an older version of Streamwork",
                "start the job once with this version; nothing else has to change",
            )
        graph = read_sealed(disk, folder / GRAPH, GraphRecord, CHECKPOINT_FILE)
        found = {}
        for node in stateful(graph):
            with contextlib.suppress(FileNotFoundError):  # a start that has not finished yet
                row = parquet_file.from_bytes(disk.read(folder / VIEWS / f"{node.id}.parquet"))
                shape = shape_of(node, row.schema, self.types.get(node.id))
                found[node.id] = Known(shape, defaults_of_row(row, shape))
        return found


def defaults_of_row(row: pa.Table, shape: Shape) -> dict[str, pa.Array]:
    """The defaults in ``views/COMPONENT.parquet``. A null is a default of an optional field only."""
    found = {}
    for column in shape.schema:
        if column.name in shape.key or column.name not in row.schema.names:
            continue
        value = row.column(column.name)
        if not value.null_count or column.nullable:
            found[column.name] = pa.array(value.to_pylist(), column.type)
    return found


def _signature(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
