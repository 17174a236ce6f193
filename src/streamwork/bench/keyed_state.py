"""``streamwork bench keyed-state``: a count and a total per key, exactly-once, compared with other systems on the same events.

    fused        per-event `KeyedOperator`, in one chain with its source: the log is partitioned by the key
    shuffled     the same operator behind an exchange: the log is not
    vectorised   the same, as `apply_batch`
    tws          transformWithStateInPandas, RocksDB with changelog, plain PySpark
    native       Spark's own streaming aggregation, its default state store, plain PySpark
    bytewax      `stateful_map`, one worker, no recovery, nothing durable; each epoch begins with no state

Streamwork emits one event for each event, stages it and checkpoints each epoch (Parquet, sha256, fsync), and commits to a
ledgered sink that discards the rows; bytewax emits as many and discards them; Spark emits one row for each key of an epoch.
Streamwork reads the embedded log, the Spark peers Parquet files, bytewax a Parquet file: each in its best format.

The contestants take turns, one epoch each, with the same events, so that noise on the machine affects all of them. The first
epochs are a warm-up; the very first contains each key. A ratio compares two consecutive epochs with the same events; the median
is reported. At the end the counts and totals of all keys are compared with numpy's; a difference is an error, and no speed is
reported.

What the number of keys costs is measured apart: jobs with few and with many keys take turns, without the others. Between two
epochs with a million keys the peers use the memory for twenty seconds, and for three between two with ten thousand: their caches
and pages would be compared, not the numbers of keys.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.bench.contest import Note, Wrong, turned
from streamwork.bench.epochs import Array, CpuTime, Epochs
from streamwork.bench.keyed_state_job import COUNTS, PARALLELISM, Counting, CountingColumns, Use, build
from streamwork.bench.peers import Bytewax, Unavailable, by_number, packages
from streamwork.bench.spark_peers import CountingPeer, Native, QueryFailed, TransformWithState
from streamwork.bench.spread import spread
from streamwork.bench.timed_events import key_names
from streamwork.hosts.session import start_spark
from streamwork.hosts.spark_epochs import SparkEpochs
from streamwork.log import EventLog

APPENDED = 10_000  # rows at a time
OURS = ("fused", "shuffled", "vectorised")
GROWING = ("shuffled", "vectorised")
"""Measured with few keys against many."""
PEERS = ("tws", "native", "bytewax")


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    keys: tuple[int, ...] = (10_000, 2, 1_000_000)  # the first one's figures stand at the top
    rows: int = 1_000_000  # of one epoch
    warm: int = 2
    repeats: int = 5
    peers: tuple[str, ...] = PEERS
    peer_seconds: float = 180.0  # a peer that takes longer for an epoch is left out, with a note


FULL = Sizes()
QUICK = Sizes(keys=(50, 2), rows=2_000, warm=1, repeats=2, peers=())


def run(folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if a count is wrong. `note` receives progress lines."""
    with tempfile.TemporaryDirectory(prefix="bench-keyed-state-", dir=folder) as name:
        scratch = Path(name)
        skipped, needed = dict[str, str](), list[Path]()
        if "tws" in sizes.peers:
            try:
                needed.append(packages("tws"))
            except Unavailable as why:
                skipped["tws"] = str(why)
        spark = start_spark(f"local[{PARALLELISM}]", scratch / "spark.log", needed)
        found = {}
        for keys in sizes.keys:
            found[str(keys)] = Contest(scratch / str(keys), spark, keys, sizes, skipped, note).run()
        growth = {}
        if sizes.keys[0] < max(sizes.keys):
            few, many = sizes.keys[0], max(sizes.keys)
            growth = {"growth": Growth(scratch / "growth", spark, (few, many), sizes, note).run()}
    main = found[str(sizes.keys[0])]
    return {
        **main,
        "keys": found,
        **growth,
        "settings": {**msgspec.to_builtins(sizes), "columns": 3, "cores": PARALLELISM},
    }


class Contest:
    """All contestants, at one number of keys."""

    def __init__(
        self,
        folder: Path,
        spark: Any,
        keys: int,
        sizes: Sizes,
        skipped: dict[str, str],
        note: Note,
        ours: Sequence[str] = OURS,
    ) -> None:
        self._folder = folder
        self._spark = spark
        self._sizes = sizes
        self._ours = ours
        self._note: Note = lambda line: note(f"{keys:,} keys: {line}")
        self._rng = np.random.default_rng(7)
        self._names = card_names(keys)
        self._counts, self._totals = np.zeros(keys, np.int64), np.zeros(keys)
        self._skipped = dict(skipped)
        self._seconds: dict[str, list[float]] = {}
        self._cpu: dict[str, list[float]] = {}
        self._fed = 0

    def run(self) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            self.start(stack)
            for repeat in range(-self._sizes.warm, self._sizes.repeats):
                self.epoch(repeat)
            self.check()
        return self._numbers()

    @property
    def seconds(self) -> dict[str, list[float]]:
        """Of each epoch behind the warm-up, by contestant."""
        return self._seconds

    def start(self, stack: contextlib.ExitStack) -> None:
        self._logs = {
            key: stack.enter_context(EventLog.create(self._folder / f"log-{key}", Use, key=key, partitions=PARALLELISM))
            for key in ("card", None)
        }
        operators = {"fused": Counting(), "shuffled": Counting(), "vectorised": CountingColumns()}
        self._sinks, self._epochs = {}, {}
        for name in self._ours:
            log = self._folder / ("log-None" if name == "shuffled" else "log-card")
            job, self._sinks[name] = build(name, operators[name], log, self._folder / f"{name}.json")
            self._epochs[name] = Epochs(job, self._folder / "root", SparkEpochs(self._spark))
            stack.callback(self._epochs[name].close)
        kinds: dict[str, type[CountingPeer]] = {"tws": TransformWithState, "native": Native}
        self._queries = {}
        for name, kind in kinds.items():
            if name in self._sizes.peers and name not in self._skipped:
                self._queries[name] = kind(self._spark, self._folder / name, self._sizes.peer_seconds)
                stack.callback(self._queries[name].close)
        self._bytewax: Bytewax | None = None
        if "bytewax" in self._sizes.peers:
            try:
                self._bytewax = Bytewax(self._folder / "bytewax", "keyed_count.py", self._sizes.peer_seconds)
            except Unavailable as why:
                self._skip("bytewax", str(why))

    # ---- one epoch of each ----------------------------------------------------------------------------------------

    def epoch(self, repeat: int) -> None:
        batch, counts, totals = self._events(every_key=repeat == -self._sizes.warm)
        for log in self._logs.values():
            for start in range(0, batch.num_rows, APPENDED):
                log.append(batch.slice(start, APPENDED))
            log.sync()
        for name in turned([*self._ours, *self._sizes.peers], repeat):
            if name in self._skipped:
                continue
            used = CpuTime()
            try:
                if name in self._ours:
                    seconds = self._epochs[name].run(batch.num_rows)
                    cpu = used.seconds()
                elif name in self._queries:
                    seconds = self._queries[name].run(uses=batch)
                    cpu = used.seconds()
                else:
                    assert self._bytewax is not None
                    said, counted = self._bytewax.run(batch)
                    self._agree("bytewax", *by_number(counted, self._names), counts, totals)
                    seconds, cpu = said.seconds, said.cpu
            except (QueryFailed, Unavailable) as why:
                self._skip(name, str(why))
                continue
            self._note(f"epoch {repeat + 1} of {self._sizes.repeats}, {name}: {batch.num_rows / seconds:,.0f} events/s")
            if repeat >= 0:
                self._seconds.setdefault(name, []).append(seconds)
                self._cpu.setdefault(name, []).append(cpu)

    def _skip(self, name: str, why: str) -> None:
        self._skipped[name] = why
        if name in self._queries:
            self._queries.pop(name).close()
        self._note(f"{name} is left out: {why}")

    def _events(self, every_key: bool) -> tuple[pa.RecordBatch, Array, Array]:
        """The events of the next epoch, with the count and total of each key."""
        rows, size = self._sizes.rows, len(self._names)
        keys = self._rng.integers(0, size, rows)
        if every_key:
            keys[: min(size, rows)] = np.arange(min(size, rows))
            self._rng.shuffle(keys)
        amounts = self._rng.integers(0, 100_000, rows) / 4  # quarters: their sum is exact in any order
        counts, totals = np.bincount(keys, minlength=size), np.bincount(keys, amounts, size)
        self._counts, self._totals = self._counts + counts, self._totals + totals
        self._fed += rows
        return self._batch(keys, amounts), counts, totals

    def _batch(self, keys: Array, amounts: Array) -> pa.RecordBatch:
        cards = pa.array(self._names).take(pa.array(keys))
        return pa.record_batch({"id": np.arange(len(keys)), "card": cards, "amount": amounts})

    # ---- what came of it ------------------------------------------------------------------------------------------

    def check(self) -> None:
        for name in self._ours:
            self._agree(name, *by_number(self._epochs[name].state(COUNTS), self._names), self._counts, self._totals)
            if self._sinks[name].rows != self._fed:
                raise Wrong(f"{name}: of {self._fed} events {self._sinks[name].rows} rows came out")
        size = len(self._names)
        every = self._batch(np.arange(size), np.ones(size))
        for name, query in self._queries.items():
            self._note(f"checking the counts of {name}")
            table = pa.Table.from_pandas(query.counts(every), preserve_index=False)
            self._agree(name, *by_number(table, self._names), self._counts + 1, self._totals + 1)

    def _agree(self, name: str, counts: Array, totals: Array, wanted_counts: Array, wanted_totals: Array) -> None:
        wrong = np.flatnonzero((counts != wanted_counts) | (totals != wanted_totals))
        if len(wrong):
            key = int(wrong[0])
            found, wanted = (counts[key], totals[key]), (wanted_counts[key], wanted_totals[key])
            raise Wrong(f"{name}: {len(wrong)} keys are wrong; {self._names[key]} has {found}, should have {wanted}")

    def _numbers(self) -> dict[str, Any]:
        """Medians, with all repeats."""
        rows, found = self._sizes.rows, dict[str, Any]()
        measured = {name: seconds for name, seconds in self._seconds.items() if name not in self._skipped}
        for name, seconds in measured.items():
            spreads = {
                "events_per_s": spread([rows / one for one in seconds], 0),
                **{f"ratio_vs_{peer}": self._ratio(seconds, measured.get(peer)) for peer in (*PEERS, "fused")},
                "cpu_s_per_million": spread([one * 1e6 / rows for one in self._cpu[name]]),
            }
            medians = {one: None if figures is None else figures["median"] for one, figures in spreads.items()}
            found[name] = {**medians, "spread": {one: figures for one, figures in spreads.items() if figures}}
        return {**found, "skipped": self._skipped}

    @staticmethod
    def _ratio(mine: list[float], theirs: list[float] | None) -> dict[str, Any] | None:
        """The speed relative to the other, epoch by epoch."""
        return None if theirs is None else spread([b / a for a, b in zip(mine, theirs, strict=True)])


class Growth:
    """The same jobs with few and with many keys, in turn."""

    def __init__(self, folder: Path, spark: Any, keys: tuple[int, int], sizes: Sizes, note: Note) -> None:
        alone = msgspec.structs.replace(sizes, peers=())
        self._few, self._many = (
            Contest(folder / str(one), spark, one, alone, {}, lambda line: note(f"growth, {line}"), GROWING)
            for one in keys
        )
        self._sizes, self._keys = sizes, keys

    def run(self) -> dict[str, Any]:
        contests = (self._few, self._many)
        with contextlib.ExitStack() as stack:
            for contest in contests:
                contest.start(stack)
            for repeat in range(-self._sizes.warm, self._sizes.repeats):
                for contest in turned(contests, repeat):
                    contest.epoch(repeat)
            for contest in contests:
                contest.check()
        few, many = self._keys
        return {"few": few, "many": many, **{way: self._numbers(way) for way in GROWING}}

    def _numbers(self, way: str) -> dict[str, Any]:
        few, many = self._few.seconds[way], self._many.seconds[way]
        spreads = {
            "few_events_per_s": spread([self._sizes.rows / one for one in few], 0),
            "many_events_per_s": spread([self._sizes.rows / one for one in many], 0),
            "ratio_many_vs_few": spread([a / b for a, b in zip(few, many, strict=True)]),
        }
        return {**{name: one["median"] for name, one in spreads.items()}, "spread": spreads}


def card_names(count: int) -> list[str]:
    return key_names(count, "card", PARALLELISM)
