"""The contestants of benchmarks whose results depend on event time.

    fused      Streamwork, in one chain with its sources: the logs are partitioned by the key
    shuffled   Streamwork behind an exchange: the logs are not
    spark      plain Structured Streaming with RocksDB, from Parquet files
    bytewax    Bytewax, one worker, no recovery, nothing durable; each epoch begins with no state

Streamwork runs exactly-once: it checkpoints each epoch (Parquet, sha256, fsync), stages its output and commits it to a sink
with a ledger, which keeps the rows in memory until they are checked. The others discard their output.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from streamwork.bench.contest import Contest, Contestant, Epoch, Note, Timed, Wrong, with_worst
from streamwork.bench.epochs import CpuTime, Epochs, KeepingSink
from streamwork.bench.peers import Bytewax, Unavailable
from streamwork.bench.spark_timed_peers import TimedSparkPeer
from streamwork.bench.timed_events import KEY, PARALLELISM
from streamwork.components import Event
from streamwork.hosts.spark_epochs import SparkEpochs
from streamwork.job import Job
from streamwork.log import EventLog

FUSED, SHUFFLED, SPARK, BYTEWAX = "fused", "shuffled", "spark", "bytewax"
OURS, PEERS = (FUSED, SHUFFLED), (SPARK, BYTEWAX)
APPENDED = 10_000  # rows at a time
SECOND = 1_000_000


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    rows: int  # of one epoch
    keys: int
    warm: int = 3
    repeats: int = 5
    peers: tuple[str, ...] = PEERS
    peer_seconds: float = 300.0  # a peer that takes longer for an epoch is left out, with a note


class Streamwork(Contestant):
    """A job on Spark. `logs` are those of its sources, by the name of their input."""

    def __init__(
        self,
        spark: Any,
        folder: Path,
        logs: Mapping[str, EventLog[Any]],
        job: tuple[Job, KeepingSink],
        check: Callable[[pa.Table], None],
    ) -> None:
        self._logs = logs
        self._job, self._sink = job
        self._check = check
        self._epochs = Epochs(self._job, folder / "root", SparkEpochs(spark))

    def run(self, epoch: Epoch) -> Timed:
        for name, batch in epoch.items():
            for start in range(0, batch.num_rows, APPENDED):
                self._logs[name].append(batch.slice(start, APPENDED))
            self._logs[name].sync()
        used = CpuTime()
        seconds = self._epochs.run(sum(batch.num_rows for batch in epoch.values()))
        return Timed(seconds, used.seconds())

    def check(self) -> None:
        self._check(pa.Table.from_batches(self._sink.batches))

    def close(self) -> None:
        self._epochs.close()
        for log in self._logs.values():
            log.close()


class Spark(Contestant):
    """Structured Streaming. `wanted` computes the number of rows and the checksum that its output must have."""

    def __init__(self, peer: TimedSparkPeer, wanted: Callable[[], tuple[int, int]]) -> None:
        self._peer = peer
        self._wanted = wanted

    def run(self, epoch: Epoch) -> Timed:
        used = CpuTime()
        seconds = self._peer.run(**epoch)
        return Timed(seconds, used.seconds())

    def check(self) -> None:
        if self._peer.checked != (wanted := self._wanted()):
            raise Wrong(f"{SPARK}: (rows, checksum) are {self._peer.checked}, should be {wanted}")

    def close(self) -> None:
        self._peer.close()


class BytewaxFlow(Contestant):
    """A flow of Bytewax, whose results are checked epoch by epoch."""

    warms_up: ClassVar[bool] = False

    def __init__(self, peer: Bytewax, options: tuple[str, ...], check: Callable[[pa.Table], None]) -> None:
        """`check` compares the results of the last epoch."""
        self._peer = peer
        self._options = options
        self._check = check

    def run(self, epoch: Epoch) -> Timed:
        said, found = self._peer.run(*epoch.values(), options=self._options)
        self._check(found)
        return Timed(said.seconds, said.cpu)

    def check(self) -> None:
        """Each epoch was checked."""


class TimedContest:
    """One query, computed by all contestants."""

    program: ClassVar[str]
    """Of Bytewax."""
    inputs: ClassVar[dict[str, type[Event]]]
    """The names of inputs, and their events."""

    def __init__(self, folder: Path, spark: Any, sizes: Sizes, note: Note) -> None:
        self.folder, self._spark, self._sizes, self._note = folder, spark, sizes, note

    @abstractmethod
    def next_epoch(self) -> Epoch: ...

    @abstractmethod
    def closing_epochs(self) -> list[Epoch]:
        """Epochs that make all results final."""

    @abstractmethod
    def job(self, name: str, logs: Mapping[str, Path], ledger: Path) -> tuple[Job, KeepingSink]: ...

    @abstractmethod
    def spark_peer(self) -> type[TimedSparkPeer]: ...

    @abstractmethod
    def wanted_of_spark(self) -> tuple[int, int]: ...

    def bytewax_options(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def check_all(self, name: str, found: pa.Table) -> None:
        """Compare committed results of all epochs with the oracle."""

    @abstractmethod
    def check_last(self, found: pa.Table) -> None:
        """Compare results of the last epoch alone with the oracle."""

    def run(self) -> dict[str, Any]:
        skipped = dict[str, str]()
        contestants = self._contestants(skipped)
        contest = Contest(contestants, self._sizes.warm, self._sizes.repeats, self._note)
        try:
            contest.run(self.next_epoch)
            for epoch in self.closing_epochs():
                contest.run_unmeasured(epoch)
            contest.check()
            figures = contest.figures(PEERS)
        finally:
            contest.close()
        return {**with_worst(figures, OURS, PEERS), "skipped": {**skipped, **contest.skipped}}

    def _contestants(self, skipped: dict[str, str]) -> dict[str, Contestant]:
        found = dict[str, Contestant]()
        for name in OURS:
            found[name] = self._ours(name)
        if SPARK in self._sizes.peers:
            peer = self.spark_peer()(self._spark, self.folder / SPARK, self._sizes.peer_seconds)
            found[SPARK] = Spark(peer, self.wanted_of_spark)
        if BYTEWAX in self._sizes.peers:
            try:
                flow = Bytewax(self.folder / BYTEWAX, self.program, self._sizes.peer_seconds)
                found[BYTEWAX] = BytewaxFlow(flow, self.bytewax_options(), self.check_last)
            except Unavailable as why:
                skipped[BYTEWAX] = str(why)
                self._note(f"{BYTEWAX} is left out: {why}")
        return found

    def _ours(self, name: str) -> Streamwork:
        folder = self.folder / name
        paths = {one: folder / f"log-{one}" for one in self.inputs}
        key = KEY if name == FUSED else None
        logs = {
            one: EventLog.create(paths[one], event, key=key, partitions=PARALLELISM)
            for one, event in self.inputs.items()
        }
        job = self.job(name, paths, folder / "ledger.json")
        return Streamwork(self._spark, folder, logs, job, lambda found: self.check_all(name, found))
