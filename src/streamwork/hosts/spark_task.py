"""The part of `spark_epochs` that runs inside Spark's Python workers.

A worker process outlives tasks, so what is cached here (the unpacked layout, set-up operators, state) is reused by the next
epoch.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from streamwork.delivery.retrying import FRESH_SECONDS
from streamwork.engine import Assignment, Parcel, Worker
from streamwork.engine.reading import Read
from streamwork.errors import StreamworkError
from streamwork.hosts.spark_affinity import bind_instance
from streamwork.hosts.spark_input import Arrivals
from streamwork.hosts.spark_rows import Rows
from streamwork.job import Layout
from streamwork.job.params import unpack
from streamwork.world import RealDisk
from streamwork.world.heartbeat import Heartbeat

_worker = Worker(RealDisk(), beating=lambda beat: Heartbeat(beat, FRESH_SECONDS))
_layouts: dict[str, Layout] = {}
_seen: set[tuple[str, int]] = set()  # folders and fences that this process has verified

REPORT_SCHEMA = "reports string"
FAREWELL_SECONDS = 0.1
"""How long a process that has closed its operators stays busy, so that Spark gives the next task to another one."""
NOT_MINE = re.compile(r"host (?P<host>\S+) does not see (?P<root>.+)/fences/\d+\.json")
"""The error, in a traceback, of a task on a machine that does not share the job's folder."""
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def task(
    load_layout: Callable[[], bytes],
    token: str,
    works: bytes,
    stage: int,
    remote: bool = False,
    native: tuple[str, ...] = (),
    affinity: str | None = None,
    ahead: bool = False,
) -> Task:
    """The function for `mapInArrow`: the attempts at one epoch by the instances of one stage.

    `works` are those of the stage, in the order of its partitions; with an `affinity` folder, a task binds one of them.
    The rows of the last stage are the reports of all instances. A `remote` task verifies that it shares the job's folder with the
    driver. `native` are the sources whose rows Spark reads for the stage. With `ahead`, states are read and nothing is computed.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # This function is pickled by value, with a copy of every global that it names. The functions that it calls are imported.
        return _run(load_layout, token, works, stage, remote, native, affinity, ahead, batches)

    return run


def _run(
    load_layout: Callable[[], bytes],
    token: str,
    works: bytes,
    stage: int,
    remote: bool,
    native: tuple[str, ...],
    affinity: str | None,
    ahead: bool,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    partition = TaskContext.get().partitionId()
    if token not in _layouts:
        _layouts.clear()
        _layouts[token] = unpack(load_layout())
    layout = _layouts[token]
    mine = msgspec.json.decode(works, type=list[Assignment])
    if remote and not ahead:
        check_folder(mine[partition])
    work = mine[partition] if affinity is None else bind_instance(affinity, partition, mine, _worker.unread)
    if ahead:
        _read_ahead(layout, work)
        Arrivals(batches).drain()
        return
    sent = _computed(layout, token, work, native, Arrivals(batches))
    if stage + 1 < len(layout.stages):
        yield from Rows(layout, stage).batches(sent)
    else:
        answers = [bytes(parcel.content).decode() for parcel in sent]
        yield pa.record_batch({"reports": pa.array(answers, pa.string())})


def _computed(
    layout: Layout, token: str, work: Assignment, native: tuple[str, ...], arrivals: Arrivals
) -> Iterator[Parcel]:
    """The parcels that one instance sends, and those that pass through its partition to others."""
    place = (work.chain, work.instance)
    attempt = _worker.begin(layout, token, work)
    try:
        for parcel in arrivals.parcels():
            if parcel.head.to == place:
                yield from attempt.receive(parcel)
            else:
                yield parcel
        if layout.chains[work.chain].is_source:
            yield from attempt.read(_readers(layout, work, native, arrivals))
        yield from attempt.finish()
        arrivals.drain()
    finally:
        attempt.discard()


def _read_ahead(layout: Layout, work: Assignment) -> None:
    """Read the states of an instance into the cache."""
    with contextlib.suppress(StreamworkError, OSError):  # retention may have removed a file meanwhile
        _worker.read_ahead(layout, work)


def _readers(layout: Layout, work: Assignment, native: tuple[str, ...], arrivals: Arrivals) -> dict[str, Read]:
    """The readers of slices that Spark reads for this instance."""
    sources = {name: layout.graph[name].component.native() for name in native if name in work.extents}
    return {
        name: arrivals.reader(name, native.index(name), layout.native[name].filters, source.take)
        for name, source in sources.items()
    }


def check_folder(work: Assignment) -> None:
    """Raises if the driver's fence file is not visible here; then Spark retries the task, perhaps on another machine."""
    if (work.folder, work.fence) not in _seen:
        fence = Path(work.folder) / "fences" / f"{work.fence}.json"
        if not fence.exists():
            raise FileNotFoundError(f"host {socket.gethostname()} does not see {fence}")
        _seen.add((work.folder, work.fence))


def pass_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task of a keep-alive job."""
    yield from batches


def farewell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The job ends: close the operators that this process has set up."""
    yield from batches
    _worker.close()
    time.sleep(FAREWELL_SECONDS)
