"""`JobView`: a job with its graph: the status, and the figures of every component, stream and instance."""

from __future__ import annotations

from pathlib import Path

import msgspec

from streamwork.epoch.history.reading import at_once, input_ends, rows, samples
from streamwork.epoch.job_folder import open_store
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.savepoints.graph_record import GraphRecord
from streamwork.epoch.savepoints.record import GRAPH
from streamwork.epoch.sealed import read_sealed
from streamwork.epoch.start_records import StartRecords
from streamwork.epoch.store import CHECKPOINT_FILE, Store
from streamwork.errors import Refused
from streamwork.observe.job_graph import JobGraph, job_graph
from streamwork.observe.rates import component_rates, source_rates
from streamwork.observe.status import JobStatus, read_status
from streamwork.observe.verdicts.reading import EPOCHS
from streamwork.run.record import RunRecord, read_run
from streamwork.world import Clock


class SourceTime(msgspec.Struct, frozen=True):
    """How far event time has come in one source partition, at the newest checkpoint."""

    source: str
    partition: str
    watermark: float  # seconds since 1970
    behind: float | None  # seconds that it was behind the clock when that checkpoint was written


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job in full."""

    job: str
    root: str
    status: JobStatus
    semantics: str
    tracking: str
    run: RunRecord | None
    graph: JobGraph | None  # None: the job has not started yet, or an older version has
    event_time: tuple[SourceTime, ...]


def read_job(root: Path, job: str, clock: Clock, watch: bool = True) -> JobView:
    """With `watch`, a holder on another machine is watched for some seconds."""
    with at_once(root / job / "history.sqlite"):
        return _read(root, job, clock, watch)


def _read(root: Path, job: str, clock: Clock, watch: bool) -> JobView:
    store = open_store(root, job)
    status = read_status(root, job, clock, watch)
    manifest, record = _manifest(store, status.checkpoint), read_run(store.disk, store.folder)
    start = StartRecords(store.disk, store.folder / "fences").last()
    return JobView(
        job=job,
        root=str(root),
        status=status,
        semantics="" if start is None else start.semantics,
        tracking="" if start is None else start.tracking,
        run=record,
        graph=_graph(store, status, manifest, record, clock),
        event_time=_event_time(status, manifest),
    )


def read_graph(store: Store) -> GraphRecord | None:
    """The graph as the last start recorded it; None if none did, or the file is damaged."""
    if not store.disk.exists(store.folder / GRAPH):
        return None
    try:
        return read_sealed(store.disk, store.folder / GRAPH, GraphRecord, CHECKPOINT_FILE)
    except Refused:
        return None


def _graph(
    store: Store, status: JobStatus, manifest: Manifest | None, run: RunRecord | None, clock: Clock
) -> JobGraph | None:
    record = read_graph(store)
    if record is None:
        return None
    history, now = store.folder / "history.sqlite", clock.now()
    if not status.running:
        return job_graph(record, status, manifest, {}, None)
    interval = 1.0 if run is None else run.checkpoint_every
    units = {one.source: one.unit for one in input_ends(history)}
    sources = source_rates(samples(history), units, interval, now)
    return job_graph(
        record, status, manifest, sources, component_rates(history, rows(history, EPOCHS)[::-1], interval, now)
    )


def _manifest(store: Store, epoch: int | None) -> Manifest | None:
    if epoch is None:
        return None
    try:
        return store.manifest(epoch)
    except (Refused, OSError):
        return None  # damaged, or pruned meanwhile


def _event_time(status: JobStatus, manifest: Manifest | None) -> tuple[SourceTime, ...]:
    found = []
    for name, at in sorted(({} if manifest is None else manifest.watermarks).items()):
        source, _, partition = name.partition("/")
        late = None if status.completed_at is None else round(status.completed_at - at / 1e6, 3)
        found.append(SourceTime(source, partition, at / 1e6, late))
    return tuple(found)
