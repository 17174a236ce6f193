"""Shared by benchmarks of whole epochs: a job run epoch by epoch, a sink that discards rows, CPU time of all processes."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from streamwork.components import Event, LedgerEntry, LedgerRow, Sink, SinkKind
from streamwork.components.commit_rule import Verdict, settle
from streamwork.components.sink import fenced
from streamwork.epoch import Driver, Host, Store
from streamwork.epoch.control import Answer, Control, Kind
from streamwork.epoch.requests import Requests
from streamwork.epoch.savepoints.taking import NAME
from streamwork.epoch.state_view import state_view
from streamwork.job import Job
from streamwork.world import RealClock, RealDisk, step_back

Array = np.ndarray[Any, Any]


class DiscardSink(Sink[Any]):
    """A transactional sink with a ledger on disk that counts rows and discards them."""

    kind = SinkKind.TRANSACTIONAL

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows = 0

    def open(self, event: type[Event]) -> None: ...

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        row = self.ledger(uid, sink_id) or LedgerRow(0, None, "")
        if row.fence > fence:
            raise fenced(sink_id, row.fence, fence)
        self._keep(LedgerRow(fence, row.position, row.manifest_sha256))

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        if not RealDisk().exists(self._path):
            return None
        return LedgerRow.from_json(RealDisk().read(self._path))

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        row = self.ledger(entry.uid, entry.sink)
        verdict = settle(row, entry)
        if verdict is Verdict.APPLY:
            self.take(staged)
            self._keep(LedgerRow(entry.fence, entry.end, entry.manifest_sha256))
        elif verdict is Verdict.ADOPT:
            assert row is not None
            self._keep(LedgerRow(entry.fence, row.position, entry.manifest_sha256))

    def take(self, staged: Iterator[pa.RecordBatch]) -> None:
        """Take rows that are committed."""
        self.rows += sum(batch.num_rows for batch in staged)

    def _keep(self, row: LedgerRow) -> None:
        RealDisk().make_folder(self._path.parent)
        RealDisk().replace(self._path, row.to_json().encode())


class KeepingSink(DiscardSink):
    """Keeps the rows that were committed, in memory, until they are checked."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.batches: list[pa.RecordBatch] = []

    def take(self, staged: Iterator[pa.RecordBatch]) -> None:
        before = len(self.batches)
        self.batches.extend(staged)
        super().take(iter(self.batches[before:]))


class Epochs:
    """A running job, with snapshots in the background as in `streamwork run`."""

    def __init__(self, job: Job, root: Path, host: Host) -> None:
        self.job = job
        self._store = Store(RealDisk(), root, job.name)
        self._host = host
        self._background = ThreadPoolExecutor(1, initializer=step_back)
        self._control = Control(self._store.disk, self._store.folder, RealClock())
        graph = job.graph()
        host.open(graph)
        self._driver = Driver(
            graph,
            job.settings,
            self._store,
            host,
            RealClock(),
            lambda: secrets.token_hex(16),
            background=self._background.submit,
            requests=Requests(self._control, itertools.count().__next__),  # reads them whenever it attends
        )
        self._driver.start()

    def run(self, events: int) -> float:
        """Seconds of one epoch, from plan to complete; it must process `events` events."""
        began = time.perf_counter()
        manifest = self._driver.run_epoch()
        seconds = time.perf_counter() - began
        self._driver.beat()
        assert manifest is not None, f"{self.job.name} found nothing to do"
        came = sum(manifest.counters[node.id]["processed"] for node in self._driver.graph.sources)
        assert came == events, f"{self.job.name} has had {came} events in an epoch of {events}"
        return seconds

    def run_all(self, events: int) -> float:
        """Seconds of as many epochs as so many events take, from the first plan to the last of them completed."""
        came, began = 0, time.perf_counter()
        while (manifest := self._driver.run_epoch()) is not None:
            came += sum(manifest.counters[node.id]["processed"] for node in self._driver.graph.sources)
            self._driver.beat()
            if came >= events and not self._driver.behind():
                break
        seconds = time.perf_counter() - began
        assert came == events, f"{self.job.name} has had {came} events of {events}"
        return seconds

    def attend(self) -> None:
        """What a driver does between two epochs."""
        self._driver.attend()

    def ask_for_savepoint(self, name: str) -> str:
        """The id of the request, for `answer`. The driver reads it when it attends."""
        return self._control.ask(Kind.SAVEPOINT, self._driver.fence, {NAME: name})

    def answer(self, asked: str) -> Answer | None:
        return self._control.answer(asked)

    def state(self, component: str) -> pa.Table:
        """The rows of a component's state, of all instances, as the files of the last checkpoint have them."""
        driver, groups = self._driver, self.job.settings.groups
        return state_view(driver.graph, self._store, driver.at, component, groups).to_arrow()

    def close(self) -> None:
        self._driver.close()
        self._host.close()
        self._background.shutdown()


class CpuTime:
    """Counts the CPU seconds of this process and of all below it, from now on, without processes that have ended."""

    def __init__(self) -> None:
        self._before = self._used()

    def seconds(self) -> float:
        return sum(used - self._before.get(process, 0.0) for process, used in self._used().items())

    @staticmethod
    def _used() -> dict[tuple[int, float], float]:
        """CPU seconds by process id and start time: an id may be reused."""
        found, me = dict[tuple[int, float], float](), psutil.Process()
        for process in (me, *me.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                found[process.pid, process.create_time()] = times.user + times.system
        return found


def peak_bytes() -> dict[str, int]:
    """Peak memory of the processes, by kind: this one, Java, Python workers."""
    found: dict[str, int] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            name = "java" if "java" in process.name() else "python workers"
            status = Path(f"/proc/{process.pid}/status").read_text()
        except (psutil.NoSuchProcess, OSError):
            continue
        peak = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)
        found[name] = max(found.get(name, 0), peak)
    return found
