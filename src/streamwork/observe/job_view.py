"""`JobView`: a job with its graph: the status, and the figures of every component, stream and instance."""

from __future__ import annotations

from pathlib import Path

import msgspec

from streamwork.epoch.history.reading import at_once, input_ends, rows, samples
from streamwork.epoch.job_folder import open_store
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
    idle: bool  # it brings no events, and holds back no other partition


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
    record = read_run(store.disk, store.folder)
    start = StartRecords(store.disk, store.folder / "fences").last()
    return JobView(
        job=job,
        root=str(root),
        status=status,
        semantics="" if start is None else start.semantics,
        tracking="" if start is None else start.tracking,
        run=record,
        graph=_graph(store, status, record, clock),
        event_time=_event_time(status),
    )


def read_graph(store: Store) -> GraphRecord | None:
    """The graph as the last start recorded it; None if none did, or the file is damaged."""
    if not store.disk.exists(store.folder / GRAPH):
        return None
    try:
        return read_sealed(store.disk, store.folder / GRAPH, GraphRecord, CHECKPOINT_FILE)
    except Refused:
        return None


def _graph(store: Store, status: JobStatus, run: RunRecord | None, clock: Clock) -> JobGraph | None:
    record = read_graph(store)
    if record is None:
        return None
    history, now = store.folder / "history.sqlite", clock.now()
    if not status.running:
        return job_graph(record, status, {}, None)
    interval = 1.0 if run is None else run.checkpoint_every
    units = {one.source: one.unit for one in input_ends(history)}
    sources = source_rates(samples(history), units, interval, now)
    rates = component_rates(history, rows(history, EPOCHS)[::-1], interval, now)
    return job_graph(record, status, sources, rates)


def _event_time(status: JobStatus) -> tuple[SourceTime, ...]:
    return tuple(
        SourceTime(
            one.source,
            one.partition,
            one.watermark,
            None if status.completed_at is None else round(status.completed_at - one.watermark, 3),
            one.idle,
        )
        for one in status.event_times
    )
