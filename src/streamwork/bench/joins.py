"""``streamwork bench joins``: clicks and purchases of the same user within 30 s, exactly-once, compared with other systems.

An epoch covers a minute of event time, with four clicks to one purchase. The contestants are those of `bench.timed_contest`. Events
are up to 2 s out of order, and may be 5 s late; none is. The ratio is the smaller one of `fused` and `shuffled`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.bench import join_oracle
from streamwork.bench.contest import Epoch, Note, Wrong
from streamwork.bench.epochs import KeepingSink
from streamwork.bench.join_oracle import Pairs
from streamwork.bench.joins_job import Click, Purchase, build
from streamwork.bench.spark_timed_peers import SparkJoin, pairs_checksum
from streamwork.bench.timed_contest import SECOND, Sizes, TimedContest
from streamwork.bench.timed_events import KEY, PARALLELISM, TimedStream, as_batch, key_names
from streamwork.components import Event
from streamwork.hosts.session import start_spark
from streamwork.job import Job

DISORDER, SPAN, WITHIN = 2 * SECOND, 60 * SECOND, 30 * SECOND
FULL = Sizes(rows=250_000, keys=125_000, warm=2)
QUICK = Sizes(rows=2_000, keys=500, warm=1, repeats=2, peers=())


def run(folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if a result is wrong. `note` receives progress lines."""
    with tempfile.TemporaryDirectory(prefix="bench-joins-", dir=folder) as name:
        scratch = Path(name)
        spark = start_spark(f"local[{PARALLELISM}]", scratch / "spark.log")
        found = {"time_bounded": JoinContest(scratch / "time-bounded", spark, sizes, note).run()}
    return {**found, "settings": {**msgspec.to_builtins(sizes), "columns": 4, "cores": PARALLELISM}}


class JoinContest(TimedContest):
    program: ClassVar[str] = "joins.py"
    inputs: ClassVar[dict[str, type[Event]]] = {"clicks": Click, "purchases": Purchase}

    def __init__(self, folder: Path, spark: Any, sizes: Sizes, note: Note) -> None:
        super().__init__(folder, spark, sizes, note)
        self._names = pa.array(key_names(sizes.keys, KEY, PARALLELISM))
        few = sizes.rows // 5
        self._clicks = TimedStream(7, sizes.keys, sizes.rows - few, SPAN, DISORDER)
        self._purchases = TimedStream(8, sizes.keys, few, SPAN, DISORDER)

    def next_epoch(self) -> Epoch:
        clicks = as_batch(Click, self._clicks.next(), self._names)
        return {"clicks": clicks, "purchases": as_batch(Purchase, self._purchases.next(), self._names)}

    def closing_epochs(self) -> list[Epoch]:
        """None: a pair is emitted when its second row arrives."""
        return []

    def job(self, name: str, logs: Mapping[str, Path], ledger: Path) -> tuple[Job, KeepingSink]:
        return build(name, logs["clicks"], logs["purchases"], ledger)

    def spark_peer(self) -> type[SparkJoin]:
        return SparkJoin

    def wanted_of_spark(self) -> tuple[int, int]:
        return pairs_checksum(self._wanted())

    def check_all(self, name: str, found: pa.Table) -> None:
        _agree(name, found, self._wanted())

    def check_last(self, found: pa.Table) -> None:
        _agree("bytewax", found, join_oracle.within(self._clicks.epochs[-1], self._purchases.epochs[-1], WITHIN))

    def _wanted(self) -> Pairs:
        return join_oracle.within(self._clicks.all(), self._purchases.all(), WITHIN)


def _agree(name: str, table: pa.Table, wanted: Pairs) -> None:
    found = Pairs(table["click"].to_numpy(), table["purchase"].to_numpy()).ordered()
    if len(found.left) != len(wanted.left):
        raise Wrong(f"{name}: there are {len(found.left)} pairs, should be {len(wanted.left)}")
    differ = np.flatnonzero((found.left != wanted.left) | (found.right != wanted.right))
    if len(differ):
        one, other = ((int(rows.left[differ[0]]), int(rows.right[differ[0]])) for rows in (found, wanted))
        raise Wrong(f"{name}: {len(differ)} pairs are wrong; one is {one}, should be {other}")
