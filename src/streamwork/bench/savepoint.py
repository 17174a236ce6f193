"""``streamwork bench savepoint``: what a savepoint of a million keys costs the job it is taken of, and what a start from it takes.

The job is the per-event count of `bench keyed-state`, in one chain with its source, on Spark.

    pause     epochs in turn: one without, one that begins with a request for a savepoint, which is written while it runs. Epochs
              that follow until the savepoint is complete are measured apart (`while_writing`)
    create    from the request until `savepoint.json` is there, while the job runs; and at rest
    start     from the savepoint in another root: restoring, the start of a driver, and its first epoch, each
    rescale   from 2 to 8 instances, at rest

The state of every savepoint is compared with the counts that numpy had at its checkpoint, that of every start and of every
rescaling likewise, before a time is reported. A start fences the other drivers of the same target, so each start has a copy of it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.bench.epochs import Array, Epochs
from streamwork.bench.keyed_state_job import COUNTS, PARALLELISM, Counting, Use, build
from streamwork.bench.spread import spread
from streamwork.engine.instance import row_format
from streamwork.epoch import Store
from streamwork.epoch.savepoints import Savepoint
from streamwork.epoch.savepoints.origin import Origin
from streamwork.epoch.savepoints.restoring import Choices, Restoring
from streamwork.hosts.session import start_spark
from streamwork.hosts.spark_epochs import SparkEpochs
from streamwork.job import Job
from streamwork.log import EventLog
from streamwork.run.rescaling import rescale
from streamwork.run.savepoints import create_savepoint
from streamwork.state import StateFiles, StateView
from streamwork.world import RealClock, RealDisk, RealProcesses

NAME, LEDGER = "savepoint", "ledger.json"
WIDER = 8
FILL = 1_000_000  # events of an epoch that makes the state
APPENDED = 50_000
Note = Callable[[str], None]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    keys: int = 1_000_000
    events: int = (
        250_000  # of an epoch: what two cores process in about a second, with so many keys (`bench keyed-state`)
    )
    warm: int = 2
    epochs: int = 20
    repeats: int = 5  # of creating at rest, of starting and of rescaling
    first: int = 10_000  # events of the first epoch after a start


FULL = Sizes()
QUICK = Sizes(keys=2_000, events=500, warm=1, epochs=3, repeats=1, first=50)


class Wrong(AssertionError):
    """A count is wrong: no time is reported."""


def run(folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if a count is wrong. `note` receives progress lines."""
    with tempfile.TemporaryDirectory(prefix="bench-savepoint-", dir=folder) as name, contextlib.ExitStack() as stack:
        scratch = Path(name)
        spark = start_spark(f"local[{PARALLELISM}]", scratch / "spark.log")
        saved = Saved(scratch, sizes, note)
        stack.callback(saved.close)
        note(f"making a state of {sizes.keys:,} keys")
        pauses = saved.measure_pauses(SparkEpochs(spark))
        note("at rest")
        at_rest = [saved.create_at_rest(number) for number in range(sizes.repeats)]
        saved.append(sizes.first)
        starts = [saved.start(SparkEpochs(spark), number) for number in range(sizes.repeats)]
        rescales = [saved.rescale(number) for number in range(sizes.repeats)]
        size = saved.bytes
    return _numbers(sizes, pauses, at_rest, starts, rescales, size)


class Saved:
    """The job, its log, and how often each key came so far."""

    def __init__(self, folder: Path, sizes: Sizes, note: Note) -> None:
        self._folder = folder
        self._sizes = sizes
        self._note = note
        self._rng = np.random.default_rng(7)
        self._counts = np.zeros(sizes.keys, np.int64)
        self._log = EventLog.create(folder / "log", Use, key="card", partitions=PARALLELISM)
        self._job = self._built(folder)
        self._store = Store(RealDisk(), folder / "root", self._job.name)
        self.bytes = 0
        """Of the last savepoint."""

    def _built(self, folder: Path) -> Job:
        """The job with the ledger in `folder`."""
        return build("saved", Counting(), self._folder / "log", folder / LEDGER)[0]

    def close(self) -> None:
        self._log.close()

    def append(self, events: int) -> None:
        self._add(self._rng.integers(0, self._sizes.keys, events))

    def _add(self, keys: Array) -> None:
        np.add.at(self._counts, keys, 1)
        cards = pa.array(keys).cast(pa.string())
        batch = pa.record_batch({"id": np.arange(len(keys)), "card": cards, "amount": np.ones(len(keys))})
        for start in range(0, len(keys), APPENDED):
            self._log.append(batch.slice(start, APPENDED))

    # ---- while it runs -------------------------------------------------------------------------------------------------

    def measure_pauses(self, host: Any) -> dict[str, list[float]]:
        """Seconds of epochs, by kind; and how long each savepoint took."""
        sizes = self._sizes
        job = Epochs(self._job, self._folder / "root", host)
        found: dict[str, list[float]] = {"without": [], "with": [], "while_writing": [], "create": []}
        try:
            for start in range(0, sizes.keys, FILL):
                keys = np.arange(start, min(start + FILL, sizes.keys))
                self._add(keys)
                job.run(len(keys))
            for number in range(-sizes.warm, sizes.epochs):
                one = self._round(job, f"{NAME}-{number + sizes.warm}")
                if number >= 0:
                    for kind, seconds in one.items():
                        found[kind] += seconds
                    self._note(
                        f"{number + 1} of {sizes.epochs}: without {one['without'][0] * 1000:.0f} ms, "
                        f"with {one['with'][0] * 1000:.0f} ms, complete after {one['create'][0] * 1000:.0f} ms"
                    )
        finally:
            job.close()
        return found

    def _round(self, job: Epochs, name: str) -> dict[str, list[float]]:
        """An epoch without, and one with a savepoint, which is then checked and removed."""
        found = {"without": [self._epoch(job)], "while_writing": list[float]()}
        counts, folder = self._counts.copy(), self._store.folder / "savepoints" / name
        asked, asked_at = job.ask_for_savepoint(name), time.time()
        found["with"] = [self._epoch(job)]
        while (answer := job.answer(asked)) is None:
            found["while_writing"].append(self._epoch(job))
        if not answer.ok:
            raise Wrong(answer.text)
        found["create"] = [(folder / "savepoint.json").stat().st_mtime - asked_at]
        self._check_savepoint(folder, counts)
        shutil.rmtree(folder)
        return found

    def _epoch(self, job: Epochs) -> float:
        """Seconds of what a driver does between two epochs, and of an epoch."""
        self.append(self._sizes.events)
        began = time.perf_counter()
        job.attend()
        job.run(self._sizes.events)
        return time.perf_counter() - began

    # ---- at rest -------------------------------------------------------------------------------------------------------

    def create_at_rest(self, number: int) -> float:
        made = create_savepoint(self._job, self._store, f"{NAME}-at-rest-{number}", "", 600, RealClock())
        self._check_savepoint(Path(made.path), self._counts)
        self.bytes, self._newest, self._newest_counts = made.bytes, Path(made.path), self._counts.copy()
        return made.seconds

    def start(self, host: Any, number: int) -> dict[str, float]:
        """Seconds of the parts of a start in another root, with a copy of the target."""
        place = self._folder / f"start-{number}"
        place.mkdir()
        shutil.copy(self._folder / LEDGER, place / LEDGER)
        job = self._built(place)
        store, began = Store(RealDisk(), place / "root", job.name), time.perf_counter()
        origin = Origin.of_savepoint(Savepoint.open(store.disk, self._newest))
        Restoring(job.graph(), job.settings, store, RealClock(), RealProcesses(), origin, Choices()).run()
        restored = time.perf_counter()
        epochs = Epochs(job, place / "root", host)
        started = time.perf_counter()
        try:
            epochs.run(self._sizes.first)
            done = time.perf_counter()
            self._check(epochs.state(COUNTS), self._counts, "after a start")
        finally:
            epochs.close()
        shutil.rmtree(place)
        return {
            "restore": restored - began,
            "driver": started - restored,
            "first_epoch": done - started,
            "total": done - began,
        }

    def rescale(self, number: int) -> float:
        place = self._folder / f"rescale-{number}"
        shutil.copytree(self._store.folder, place / "root" / self._job.name)
        shutil.copy(self._folder / LEDGER, place / LEDGER)
        job = self._built(place)
        store = Store(RealDisk(), place / "root", job.name)
        done = rescale(job, store, {COUNTS: WIDER}, RealClock())
        chains = store.manifest(done.checkpoint).components[COUNTS]
        if len(chains) != WIDER:
            raise Wrong(f"{len(chains)} instances instead of {WIDER}")
        self._check(self._rows(store.folder, chains), self._newest_counts, "after rescaling")
        shutil.rmtree(place)
        return done.seconds

    # ---- checks --------------------------------------------------------------------------------------------------------

    def _check_savepoint(self, folder: Path, counts: Array) -> None:
        savepoint = Savepoint.open(RealDisk(), folder)
        savepoint.check()
        self._check(self._rows(folder, savepoint.chains[COUNTS]), counts, f"in savepoint {folder.name}")

    def _rows(self, folder: Path, chains: Any) -> pa.Table:
        graph = self._job.graph()
        rows = row_format(graph, graph[COUNTS], self._job.settings.groups)
        return StateView(StateFiles(RealDisk(), folder), rows, chains).to_arrow()

    def _check(self, rows: pa.Table, counts: Array, where: str) -> None:
        keys = rows["card"].cast(pa.int64()).to_numpy()
        found = np.zeros(self._sizes.keys, np.int64)
        found[keys] = rows["count"].to_numpy()
        if len(keys) != self._sizes.keys or (wrong := np.flatnonzero(found != counts)).size:
            raise Wrong(
                f"{where} there are {len(keys)} of {self._sizes.keys} keys, and wrong counts: {wrong[:3].tolist()}"
            )


def _numbers(
    sizes: Sizes,
    pauses: dict[str, list[float]],
    at_rest: list[float],
    starts: list[dict[str, float]],
    rescales: list[float],
    size: int,
) -> dict[str, Any]:
    medians = {kind: float(np.median(pauses[kind])) for kind in ("without", "with")}
    return {
        "pause_ratio": round(medians["with"] / medians["without"], 3),
        "create_s": spread(pauses["create"]),
        "create_at_rest_s": spread(at_rest),
        "start_s": {part: spread([one[part] for one in starts]) for part in starts[0]},
        f"rescale_{PARALLELISM}_to_{WIDER}_s": spread(rescales),
        "savepoint_bytes": size,
        "epoch_s": {kind: spread(pauses[kind]) for kind in ("without", "with", "while_writing") if pauses[kind]},
        "settings": msgspec.to_builtins(sizes),
    }
