"""``streamwork bench windows``: a count and a sum per key and window, exactly-once, compared with other systems.

    fixed      windows of 10 s; an epoch covers a minute of event time
    sliding    windows of 10 s, every 5 s; the same events
    session    sessions with a gap of 30 s; an epoch covers 20 minutes, so that most sessions end in it

The contestants are those of `bench.timed_contest`. Events are up to 2 s out of order, and may be 5 s late; none is. The ratio of
a kind of window is the smaller one of `fused` and `shuffled`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.bench import window_oracle
from streamwork.bench.contest import Epoch, Note, Wrong
from streamwork.bench.epochs import Array, KeepingSink
from streamwork.bench.spark_timed_peers import (
    SparkFixed,
    SparkSessions,
    SparkSliding,
    SparkWindows,
    windows_checksum,
)
from streamwork.bench.timed_contest import SECOND, Sizes, TimedContest
from streamwork.bench.timed_events import KEY, PARALLELISM, TimedEvents, TimedStream, as_batch, key_names
from streamwork.bench.window_oracle import WindowResults
from streamwork.bench.windows_job import View, build
from streamwork.components import Event
from streamwork.hosts.session import start_spark
from streamwork.job import Job
from streamwork.operators.windows import Fixed, Session, Sliding, Window

DISORDER = 2 * SECOND


class WindowSizes(Sizes, frozen=True, kw_only=True):
    kinds: tuple[str, ...] = ("fixed", "sliding", "session")


FULL = WindowSizes(rows=1_000_000, keys=10_000)
QUICK = WindowSizes(rows=2_000, keys=50, warm=1, repeats=2, peers=())


def run(folder: Path | None = None, sizes: WindowSizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if a result is wrong. `note` receives progress lines."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="bench-windows-", dir=folder) as name:
        scratch = Path(name)
        spark = start_spark(f"local[{PARALLELISM}]", scratch / "spark.log")
        for kind in KINDS:
            if kind.name in sizes.kinds:
                found[kind.name] = WindowContest(scratch / kind.name, spark, sizes, note, kind).run()
    return {**found, "settings": {**msgspec.to_builtins(sizes), "columns": 4, "cores": PARALLELISM}}


class Kind(msgspec.Struct, frozen=True):
    """A kind of window, for all contestants."""

    name: str
    window: Window
    span: int  # microseconds of event time of an epoch
    spark: type[SparkWindows]

    def oracle(self, events: TimedEvents) -> WindowResults:
        if isinstance(self.window, Session):
            return window_oracle.session(events, self.window.length)
        assert isinstance(self.window, Fixed | Sliding)
        return window_oracle.sliding(events, self.window.length, self.window.step)


KINDS = (
    Kind("fixed", Fixed("10s"), 60 * SECOND, SparkFixed),
    Kind("sliding", Sliding("10s", "5s"), 60 * SECOND, SparkSliding),
    Kind("session", Session("30s"), 1_200 * SECOND, SparkSessions),
)


class WindowContest(TimedContest):
    program: ClassVar[str] = "windows.py"
    inputs: ClassVar[dict[str, type[Event]]] = {"views": View}

    def __init__(self, folder: Path, spark: Any, sizes: Sizes, note: Note, kind: Kind) -> None:
        super().__init__(folder, spark, sizes, lambda line: note(f"{kind.name}: {line}"))
        self._kind = kind
        names = key_names(sizes.keys, KEY, PARALLELISM)
        self._names, self._numbers = pa.array(names), {name: number for number, name in enumerate(names)}
        self._stream = TimedStream(7, sizes.keys, sizes.rows, kind.span, DISORDER)

    def next_epoch(self) -> Epoch:
        return {"views": as_batch(View, self._stream.next(), self._names)}

    def closing_epochs(self) -> list[Epoch]:
        """Two: Spark knows the watermark of an epoch in the next one."""
        return [{"views": as_batch(View, self._stream.closing(number), self._names)} for number in range(2)]

    def job(self, name: str, logs: Mapping[str, Path], ledger: Path) -> tuple[Job, KeepingSink]:
        return build(f"{self._kind.name}-{name}", self._kind.window, logs["views"], ledger)

    def spark_peer(self) -> type[SparkWindows]:
        return self._kind.spark

    def wanted_of_spark(self) -> tuple[int, int]:
        return windows_checksum(self._kind.oracle(self._stream.all()), self._names.to_pylist())

    def bytewax_options(self) -> tuple[str, ...]:
        return (self._kind.name,)

    def check_all(self, name: str, found: pa.Table) -> None:
        columns = [found[one] for one in ("window_start", "window_end", "views", "spent")]
        results = last_of_each(self._results(found["user"], *columns))
        closed = results.ends <= self._stream.closed_from
        results = WindowResults(*(column[closed] for column in results))
        self._agree(name, results, self._kind.oracle(self._stream.all()))

    def check_last(self, found: pa.Table) -> None:
        columns = [found[one] for one in ("start", "end", "views", "spent")]
        self._agree(
            "bytewax", self._results(found["user"], *columns).ordered(), self._kind.oracle(self._stream.epochs[-1])
        )

    def _results(self, users: Any, starts: Any, ends: Any, views: Any, spent: Any) -> WindowResults:
        numbers = np.array([self._numbers[name] for name in users.to_pylist()], np.int64)
        quarters = (spent.to_numpy() * 4).astype(np.int64)
        return WindowResults(numbers, _microseconds(starts), _microseconds(ends), views.to_numpy(), quarters)

    def _agree(self, name: str, found: WindowResults, wanted: WindowResults) -> None:
        if len(found.keys) == len(wanted.keys):
            differ = np.flatnonzero(np.any([one != other for one, other in zip(found, wanted, strict=True)], axis=0))
            if not len(differ):
                return
            one, other = ([int(column[differ[0]]) for column in rows] for rows in (found, wanted))
            raise Wrong(f"{name}: {len(differ)} windows are wrong; one is {one}, should be {other}")
        raise Wrong(f"{name}: there are {len(found.keys)} windows, should be {len(wanted.keys)}")


def last_of_each(found: WindowResults) -> WindowResults:
    """The last result of each key and window: later ones correct earlier ones."""
    order = np.lexsort((found.starts, found.keys))  # stable
    keys, starts = found.keys[order], found.starts[order]
    last = np.ones(len(order), bool)
    last[:-1] = (keys[1:] != keys[:-1]) | (starts[1:] != starts[:-1])
    return WindowResults(*(column[order[last]] for column in found))


def _microseconds(times: Any) -> Array:
    return np.asarray(times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy())
