"""``streamwork bench state-size``: the same number of changed keys per epoch, in a small state and in a large one.

Both jobs are the per-event count of `bench keyed-state`, in one chain with its source, on Spark, and run in turn, an epoch of
each. The small state has as many keys as an epoch changes; the large one many times more, of which an epoch changes as many, drawn
at random each time. The difference between them is the cost of the size of a state: finding records that are not in memory, the
file layers they are in, snapshots in the background. Every epoch is measured from plan to complete, also during a snapshot; the
run is long enough for several snapshots.

The states are made by the job itself, from a log with every key once. In the end all counts are compared with those of numpy.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.bench.epochs import Array, Epochs, peak_bytes
from streamwork.bench.keyed_state_job import COUNTS, PARALLELISM, Counting, Use, build
from streamwork.bench.spread import spread
from streamwork.hosts.session import start_spark
from streamwork.hosts.spark_epochs import SparkEpochs
from streamwork.log import EventLog

SMALL, LARGE = "small", "large"
FILL = 1_000_000  # events of an epoch that makes a state
APPENDED = 50_000
Note = Callable[[str], None]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    changed: int = 10_000  # keys of an epoch, and of the small state
    large: int = 5_000_000
    warm: int = 5
    epochs: int = 120  # snapshots of the small state come every twenty


FULL = Sizes()
QUICK = Sizes(changed=100, large=2_000, warm=1, epochs=22)


class Wrong(AssertionError):
    """A count is wrong: no time is reported."""


def run(folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if a count is wrong. `note` receives progress lines."""
    with tempfile.TemporaryDirectory(prefix="bench-state-size-", dir=folder) as name, contextlib.ExitStack() as stack:
        scratch = Path(name)
        spark = start_spark(f"local[{PARALLELISM}]", scratch / "spark.log")
        states = {
            title: Counted(scratch / title, spark, keys)
            for title, keys in ((SMALL, sizes.changed), (LARGE, sizes.large))
        }
        for title, state in states.items():
            stack.callback(state.close)
            note(f"making the {title} state of {state.keys:,} keys")
            state.fill()
        seconds: dict[str, list[float]] = {title: [] for title in states}
        for number in range(-sizes.warm, sizes.epochs):
            for title in (SMALL, LARGE) if number % 2 else (LARGE, SMALL):
                took = states[title].epoch(sizes.changed)
                if number >= 0:
                    seconds[title].append(took)
            if number >= 0 and number % 10 == 9:
                medians = ", ".join(f"{title} {np.median(seconds[title][-10:]) * 1000:.0f} ms" for title in states)
                note(f"{number + 1} of {sizes.epochs} epochs: {medians}")
        memory = peak_bytes()
        note("checking the counts")
        for title, state in states.items():
            state.check(title)
        files = {title: state.files() for title, state in states.items()}
    return _numbers(sizes, seconds, memory, files)


class Counted:
    """A job with a state of `keys` keys."""

    def __init__(self, folder: Path, spark: Any, keys: int) -> None:
        self.keys = keys
        self._rng = np.random.default_rng(7)
        self._counts = np.zeros(keys, np.int64)
        self._log = EventLog.create(folder / "log", Use, key="card", partitions=PARALLELISM)
        job, _ = build("state-size", Counting(), folder / "log", folder / "ledger.json")
        self._folder = folder / "root" / job.name
        self._epochs = Epochs(job, folder / "root", SparkEpochs(spark))

    def fill(self) -> None:
        """Every key once."""
        for start in range(0, self.keys, FILL):
            self._run(np.arange(start, min(start + FILL, self.keys)))

    def epoch(self, changed: int) -> float:
        """Seconds of an epoch that changes `changed` keys."""
        keys = self._rng.choice(self.keys, changed, replace=False) if changed < self.keys else np.arange(self.keys)
        return self._run(keys)

    def check(self, title: str) -> None:
        rows = self._epochs.state(COUNTS)
        keys = rows["card"].cast(pa.int64()).to_numpy()
        found = np.zeros(self.keys, np.int64)
        found[keys] = rows["count"].to_numpy()
        if len(keys) != self.keys or (wrong := np.flatnonzero(found != self._counts)).size:
            raise Wrong(
                f"the {title} state has {len(keys)} of {self.keys} keys, and wrong counts: {wrong[:3].tolist()}"
            )

    def files(self) -> dict[str, int]:
        """Files of the state, by kind, and their bytes."""
        paths = list(self._folder.glob("state/*/*/*.parquet"))
        snapshots = sum(".snapshot." in path.name for path in paths)
        return {
            "snapshots": snapshots,
            "deltas": len(paths) - snapshots,
            "bytes": sum(path.stat().st_size for path in paths),
        }

    def close(self) -> None:
        self._epochs.close()
        self._log.close()

    def _run(self, keys: Array) -> float:
        self._counts[keys] += 1
        cards = pa.array(keys).cast(pa.string())
        batch = pa.record_batch({"id": np.arange(len(keys)), "card": cards, "amount": np.ones(len(keys))})
        for start in range(0, len(keys), APPENDED):
            self._log.append(batch.slice(start, APPENDED))
        return self._epochs.run(len(keys))


def _numbers(
    sizes: Sizes, seconds: dict[str, list[float]], memory: dict[str, int], files: dict[str, dict[str, int]]
) -> dict[str, Any]:
    quantiles = {
        title: {f"p{q}_ms": round(float(np.percentile(took, q)) * 1000, 1) for q in (50, 90, 99, 100)}
        for title, took in seconds.items()
    }
    return {
        "ratio": round(quantiles[LARGE]["p50_ms"] / quantiles[SMALL]["p50_ms"], 3),
        "p99_ratio": round(quantiles[LARGE]["p99_ms"] / quantiles[SMALL]["p99_ms"], 3),
        "epoch_ms": quantiles,
        "peak_bytes": memory,
        "state_files": files,
        "seconds": {title: spread(took) for title, took in seconds.items()},
        "settings": msgspec.to_builtins(sizes),
    }
