"""On Spark, an epoch is computed while the sinks commit the one before it (`tests/epoch/test_overlap.py` has the crashes)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from epoch.test_crashes import check
from sample import payments, run_job, summing_job
from streamwork import SqliteSink
from streamwork.components import LedgerEntry

EVENTS = payments(60)
EPOCHS = 5


class PatientSink(SqliteSink[Any]):
    """Commits an epoch when the state of the next one has been written, which needs somebody else to compute it."""

    seen: list[int] = []

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        folder, until = self.path.parent / "root" / "summing" / "state", time.monotonic() + 30
        while entry.epoch < EPOCHS and time.monotonic() < until:
            if any(folder.glob(f"sums/*/{entry.epoch + 1:012d}-*")):
                self.seen.append(entry.epoch)
                break
            time.sleep(0.02)
        super().commit(entry, staged)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_on_spark_the_sinks_commit_while_the_next_epoch_is_computed(tmp_path: Path) -> None:
    PatientSink.seen.clear()
    job = summing_job(EVENTS, tmp_path / "out.db", len(EVENTS) // EPOCHS, PatientSink)
    run_job(job, tmp_path / "root", "microbatch")
    check(tmp_path / "out.db", EVENTS)
    assert sorted(set(PatientSink.seen)) == [1, 2, 3, 4]
