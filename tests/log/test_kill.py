"""Writers killed with -9: every acknowledged event is there, in order, once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from log import killed_writer
from streamwork.components import Event
from streamwork.log import EventLog, LogReader, Policy
from tiers import quick_every


class Tick(Event):
    life: int
    number: int
    card: str


@pytest.mark.parametrize("lives", quick_every(2, [15, 50]))
def test_killed_writers(tmp_path: Path, lives: int) -> None:
    rng = random.Random(int(os.environ.get("LOG_KILL_SEED", "0")))
    path = tmp_path / "log"
    EventLog.create(path, Tick, key="card", partitions=2, policy=Policy(segment_bytes=4 << 20)).close()
    torn, ends = 0, {0: 0, 1: 0}
    with subprocess.Popen(
        [sys.executable, killed_writer.__file__, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as nursery:
        assert nursery.stdin is not None
        for life in range(lives):
            rows = rng.choice([1, 100, 10_000, 100_000])
            nursery.stdin.write(f"{life} {rng.choice(['always', 'interval', 'never'])} {rows}\n")
            nursery.stdin.flush()
            acknowledged = one_life(nursery, rng.uniform(0.001, 0.05))
            with EventLog(path, Tick) as log:
                log.retain()  # opens every partition for writing, which is what finds a torn tail
                torn += len(log.recovered)
                ends = check(path, life, acknowledged, rows, ends)
        nursery.stdin.close()
    print(f"{torn} torn tails in {lives} lives")
    assert everything_once(path, lives)


def one_life(nursery: subprocess.Popen[str], length: float) -> int:
    """Let a writer live for a while after its first append; how many of its events were acknowledged."""
    assert nursery.stdout is not None
    pid, acknowledged = 0, 0
    while not pid or not acknowledged:
        word, *numbers = nursery.stdout.readline().split()
        if word == "pid":
            pid = int(numbers[0])
        else:
            acknowledged = int(numbers[1])
    time.sleep(length)  # the length of a life is what is being varied; nothing is waited for
    os.kill(pid, signal.SIGKILL)
    while (line := nursery.stdout.readline()) != "dead\n":
        acknowledged = int(line.split()[2])
    return acknowledged


def check(path: Path, life: int, acknowledged: int, rows: int, starts: dict[int, int]) -> dict[int, int]:
    """Look at what a life has left, from where it began in each partition; where it ended."""
    reader = LogReader(path, Tick)
    ends, seen = reader.ends(), []
    for partition, end in ends.items():
        for batch in reader.read(partition, starts[partition], end):
            assert set(batch["life"].unique().to_pylist()) == {life}, "events of another life"
            seen.append(batch["number"].to_numpy())
    numbers = np.concatenate(seen)
    found = np.unique(numbers)
    assert len(found) == len(numbers), "twice"
    assert np.array_equal(found[:acknowledged], np.arange(acknowledged)), "acknowledged events are gone"
    assert len(found) <= acknowledged + rows, "events that were never appended"
    return ends


def everything_once(path: Path, lives: int) -> bool:
    reader = LogReader(path, Tick)
    tables = [pa.Table.from_batches(reader.read(partition, 0, end)) for partition, end in reader.ends().items()]
    whole = pa.concat_tables(tables)
    distinct = whole.group_by(["life", "number"]).aggregate([])
    in_order = all(_is_ordered(table) for table in tables)
    return in_order and len(distinct) == len(whole) and len(pc.unique(whole["life"])) == lives


def _is_ordered(table: pa.Table) -> bool:
    """Within a partition, lives follow each other, and numbers within a life."""
    order = table["life"].to_numpy() * 1_000_000_000 + table["number"].to_numpy()
    return bool((np.diff(order) > 0).all())
