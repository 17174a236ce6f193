"""The number of key groups is that of the job's folder, whatever the settings of a later start say."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sample import Payment, Summing, payments
from streamwork import Job, ListSource, SqliteSink
from streamwork.epoch import Driver, Store
from streamwork.hosts.local import LocalHost
from streamwork.state import FileChain, StateFiles, compaction
from streamwork.state.rows import RowFormat
from streamwork.testing.clock import VirtualClock
from streamwork.testing.memory import MemorySink, Table
from streamwork.testing.processes import SimulatedProcesses
from streamwork.world import FileRef, RealDisk


def life(root: Path, table: Table, events: list[Payment], groups: int, processes: SimulatedProcesses) -> None:
    job = Job("grouped")
    sums = job.source(ListSource(events, Payment), id="in").apply(Summing(), key="card", id="sums", parallelism=3)
    sums.sink(SqliteSink("never-opened.db", "t"), id="out")
    disk = RealDisk()
    driver = Driver(
        job.graph(instead={"out": MemorySink(table, True)}),
        msgspec.structs.replace(job.settings, groups=groups),
        Store(disk, root, job.name),
        LocalHost(disk),
        VirtualClock(),
        lambda: "uid",
        processes=processes,
    )
    driver.start()
    while driver.run_epoch() is not None:
        pass
    driver.close()
    processes.restart()


@pytest.mark.parametrize(("first", "then"), [(8, 256), (256, 8), (7, 100)])
def test_keys_stay_where_their_state_is(tmp_path: Path, first: int, then: int) -> None:
    table, processes = Table(), SimulatedProcesses()
    life(tmp_path, table, payments(30), first, processes)
    life(tmp_path, table, payments(90), then, processes)
    numbers: dict[str, list[int]] = {}
    for row in table.rows:
        numbers.setdefault(row.card, []).append(row.number)
    assert all(mine == list(range(1, len(mine) + 1)) for mine in numbers.values()), numbers


def test_snapshots_are_written_in_the_groups_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, processes, used = Table(), SimulatedProcesses(), set[int]()
    life(tmp_path, table, payments(30), 8, processes)
    compact = compaction.compact

    def noting(files: StateFiles, chain: FileChain, rows: RowFormat, stem: str) -> FileRef:
        used.add(rows._groups)
        return compact(files, chain, rows, stem)

    monkeypatch.setattr(compaction, "compact", noting)
    monkeypatch.setattr(compaction, "LONGEST_CHAIN", 1)
    life(tmp_path, table, payments(90), 256, processes)
    assert used == {8}
