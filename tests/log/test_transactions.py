"""Transactions over several partitions: all or nothing, and the ledger agrees, wherever it stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from log.world import PATH, HandClock, MemoryLocks, Payment, open_log, payments
from streamwork.components import LedgerRow, Position
from streamwork.errors import StreamworkError
from streamwork.log import EventLog, LogReader, Policy
from streamwork.testing.disk import DiskCrashed, SimulatedDisk, Survival

CLOCK = HandClock()


def made(disk: SimulatedDisk, **options: Any) -> None:
    EventLog.create(PATH, Payment, key="card", partitions=3, disk=disk, clock=CLOCK, **options)


def visible(disk: SimulatedDisk, isolation: str = "read-committed") -> list[int]:
    reader = LogReader(PATH, Payment, isolation=isolation, disk=disk, clock=CLOCK)
    return sorted(i for p, end in reader.ends().items() for b in reader.read(p, 0, end) for i in b["id"].to_pylist())


def row(position: int, fence: int = 1) -> LedgerRow:
    return LedgerRow(fence, Position({"in/0": position}), f"sha-{position}")


def test_nothing_is_seen_before_the_commit_and_everything_after_it() -> None:
    disk = SimulatedDisk()
    made(disk)
    log = open_log(disk, CLOCK)
    log.register("uid", "out", 1)
    assert log.ledger("uid", "out") == LedgerRow(1, None, "")
    with log.transaction("uid", "out", 1) as transaction:
        assert transaction.ledger == LedgerRow(1, None, "")
        transaction.append(payments(*range(10)))
        transaction.append(payments(*range(10, 20)))
        assert len(transaction.ranges) == 3
        assert visible(disk) == []
        assert visible(disk, "read-uncommitted") == list(range(20))
        transaction.commit(row(20))
    assert visible(disk) == list(range(20))
    assert log.ledger("uid", "out") == row(20)
    assert log.ledger("uid", "other") is None


def test_a_transaction_that_ends_without_commit_leaves_nothing() -> None:
    disk = SimulatedDisk()
    made(disk)
    log = open_log(disk, CLOCK)
    with log.transaction("uid", "out", 1) as transaction:
        transaction.append(payments(*range(10)))
    with pytest.raises(ZeroDivisionError), log.transaction("uid", "out", 1) as transaction:
        transaction.append(payments(*range(10)))
        raise ZeroDivisionError
    log.append(payments(*range(100, 110)))
    assert visible(disk) == list(range(100, 110))
    log.seek("start")
    assert sorted(e.id for e in log.pull()) == list(range(100, 110))
    assert log.positions == log.ends()  # the given-up events were passed over
    assert log.ledger("uid", "out") is None


def test_readers_wait_in_front_of_an_open_transaction() -> None:
    disk = SimulatedDisk()
    made(disk)
    log = open_log(disk, CLOCK)
    log.append(payments(*range(10)))
    reader = LogReader(PATH, Payment, disk=disk, clock=CLOCK)
    cursor = reader.cursor()
    with log.transaction("uid", "out", 1) as transaction:
        transaction.append(payments(*range(10, 20)))
        assert sum(chunk.batch.num_rows for chunk in cursor.pull(1000)) == 10
        assert cursor.pull(1000) == []
        end = reader.end(0)
        with pytest.raises(StreamworkError, match="SW-LOG-AHEAD"):
            list(reader.read(0, end, end + 1))
        transaction.commit(row(1))
    assert sum(chunk.batch.num_rows for chunk in cursor.pull(1000)) == 10


def test_fences_owners_and_misuse() -> None:
    disk = SimulatedDisk()
    made(disk)
    log = open_log(disk, CLOCK)
    log.register("uid", "out", 5)
    with pytest.raises(StreamworkError, match="SW-SINK-FENCED"):
        log.register("uid", "out", 4)
    with pytest.raises(StreamworkError, match="SW-SINK-FENCED"), log.transaction("uid", "out", 4):
        pass
    with pytest.raises(StreamworkError, match="SW-SINK-OWNED"):
        log.register("another", "out", 6)
    with log.transaction("uid", "out", 5) as transaction:
        with pytest.raises(StreamworkError, match="SW-LOG-TRANSACTION"):
            log.append(payments(1))
        with pytest.raises(StreamworkError, match="SW-LOG-TRANSACTION"):
            log.register("uid", "out", 6)
        with pytest.raises(StreamworkError, match="SW-SINK-FENCED"):
            transaction.commit(row(1, fence=4))
        transaction.commit(row(1, fence=5))
        with pytest.raises(StreamworkError, match="SW-LOG-TRANSACTION"):
            transaction.append(payments(1))
    log.append(payments(2))
    assert visible(disk) == [2]


def test_locks_are_held_only_while_needed() -> None:
    disk, locks = SimulatedDisk(), MemoryLocks()
    made(disk)
    old, new = (open_log(disk, CLOCK, locks=locks) for _ in range(2))
    old.register("uid", "out", 1)
    with old.transaction("uid", "out", 1) as transaction:
        transaction.append(payments(*range(10)))
        with pytest.raises(StreamworkError, match="SW-LOG-LOCKED"):
            new.register("uid", "out", 2)
        transaction.commit(row(10))
    new.register("uid", "out", 2)
    with new.transaction("uid", "out", 2) as transaction:
        assert transaction.ledger == row(10, fence=2)
        transaction.append(payments(*range(10, 20)))
        transaction.commit(row(20, fence=2))
    with pytest.raises(StreamworkError, match="SW-SINK-FENCED"), old.transaction("uid", "out", 1):
        pass
    assert visible(disk) == list(range(20))


def life(disk: SimulatedDisk) -> None:
    """Two transactions with plain appends around them, on a log that rolls."""
    log = open_log(disk, CLOCK)
    log.append(payments(*range(5)))
    log.register("uid", "out", 1)
    for position in (20, 40):
        with log.transaction("uid", "out", 1) as transaction:
            transaction.append(payments(*range(position, position + 10)))
            transaction.append(payments(*range(position + 10, position + 20)))
            transaction.commit(row(position))
    log.append(payments(*range(5, 9)))
    log.close()


@pytest.mark.parametrize("survival", list(Survival))
def test_a_crash_at_every_step_leaves_all_or_nothing(survival: Survival) -> None:
    rehearsal = SimulatedDisk()
    made(rehearsal, policy=Policy(segment_bytes=3000))
    before = rehearsal.steps
    life(rehearsal)
    outcomes = set()
    for step in range(before + 1, rehearsal.steps + 1):
        disk = SimulatedDisk(seed=step)
        made(disk, policy=Policy(segment_bytes=3000))
        disk.crash_at(step)
        with pytest.raises(DiskCrashed):
            life(disk)
        disk.crash(survival)
        after = LogReader(PATH, Payment, disk=disk, clock=CLOCK)
        try:
            ledger, seen = after.ledger("uid", "out"), visible(disk)
        except StreamworkError as error:
            # Before the next writer has looked, a tail full of holes is damage to a reader; never wrong events.
            assert error.code == "SW-LOG-DAMAGED"
        else:
            check(ledger, seen)
        log = open_log(disk, CLOCK)
        log.register("uid", "out", 2)
        ledger = log.ledger("uid", "out")
        check(ledger, visible(disk))
        outcomes.add(str(ledger and ledger.position))
        # And it goes on: the next transaction follows, the ledger moves.
        with log.transaction("uid", "out", 2) as transaction:
            transaction.append(payments(*range(60, 80)))
            transaction.commit(row(60, fence=2))
        assert [i for i in visible(disk) if i >= 60] == list(range(60, 80))
        assert log.ledger("uid", "out") == row(60, fence=2)
    assert outcomes == {"None", "in/0 at 20", "in/0 at 40"}


def check(ledger: LedgerRow | None, seen: list[int]) -> None:
    position = 0 if ledger is None or ledger.position is None else ledger.position["in/0"]
    expected = {0: [], 20: range(20, 40), 40: range(20, 60)}[position]
    assert [i for i in seen if i >= 20] == list(expected), (ledger, seen)


def test_negative_control_a_disk_that_lies_about_syncs_tears_a_transaction() -> None:
    """The checker above must notice when the syncs of steps 3 and 4 mean nothing."""
    caught = 0
    for seed in range(40):
        disk = SimulatedDisk(seed, honest=False)
        made(disk)
        life(disk)
        disk.crash()
        try:
            check(LedgerRow(1, Position({"in/0": 40}), ""), visible(disk))
        except (AssertionError, StreamworkError):
            caught += 1
    assert caught > 20


def test_a_full_disk_within_a_transaction() -> None:
    for spare in range(0, 6000, 300):
        disk = SimulatedDisk()
        made(disk)
        log = open_log(disk, CLOCK)
        log.register("uid", "out", 1)
        disk.capacity = disk.used + spare
        committed = False
        try:
            with log.transaction("uid", "out", 1) as transaction:
                transaction.append(payments(*range(20, 40)))
                transaction.commit(row(20))
                committed = True
        except StreamworkError as error:
            assert error.code == "SW-LOG-FULL"
        assert visible(disk) == (list(range(20, 40)) if committed else [])
        disk.capacity = None
        log.append(payments(1))
        assert visible(disk) == ([1, *range(20, 40)] if committed else [1])
        assert log.ledger("uid", "out") == (row(20) if committed else LedgerRow(1, None, ""))


def test_a_commit_whose_sync_failed_is_settled_by_looking() -> None:
    disk = SimulatedDisk()
    made(disk)
    log = open_log(disk, CLOCK)
    log.register("uid", "out", 1)
    with pytest.raises(StreamworkError, match="SW-LOG-IO"), log.transaction("uid", "out", 1) as transaction:
        transaction.append(payments(*range(20, 40)))
        disk.fail_at(disk.steps + 5)  # three syncs of data, the write of the record, its sync
        transaction.commit(row(20))
    assert visible(disk) == list(range(20, 40))
    with log.transaction("uid", "out", 1) as transaction:
        assert transaction.ledger == row(20)


def test_old_decisions_go_with_their_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamwork.log.event_log._CONTROL", Policy(segment_bytes=4000))
    disk, clock = SimulatedDisk(), HandClock()
    EventLog.create(PATH, Payment, disk=disk, clock=clock, policy=Policy(segment_bytes=2000, retain_bytes=5000))
    log = open_log(disk, clock)
    log.register("uid", "out", 1)
    reader = LogReader(PATH, Payment, disk=disk, clock=clock)
    for position in range(60):
        with log.transaction("uid", "out", 1) as transaction:
            transaction.append(payments(position))
            if position % 4:
                transaction.commit(row(position))
        if position == 20:
            assert reader.ledger("uid", "out") == row(19)
    log.retain()
    names = disk.names(PATH / "transactions")
    assert names[0] != f"{0:020d}.arrow"
    assert len(names) < 12
    for one in (reader, LogReader(PATH, Payment, disk=disk, clock=clock)):
        assert one.ledger("uid", "out") == row(59)
        start = one.start(0)
        seen = [i for b in one.read(0, start, one.end(0)) for i in b["id"].to_pylist()]
        assert seen == [i for i in range(start, 60) if i % 4]


KILLED = """
import sys
from streamwork.components import LedgerRow, Position
from streamwork.log import EventLog
log = EventLog(sys.argv[1])
log.register("uid", "out", int(sys.argv[2]))
row = log.ledger("uid", "out")
at = first = row.position["in/0"] if row.position else 0
while True:
    with log.transaction("uid", "out", int(sys.argv[2])) as transaction:
        for part in range(4):
            transaction.append([log.event(at + i, f"card-{at + i}", 1.0) for i in range(part * 5, part * 5 + 5)])
        at += 20
        transaction.commit(LedgerRow(int(sys.argv[2]), Position({"in/0": at}), ""))
    if at == first + 20:
        print("go", flush=True)
"""


@pytest.mark.slow
def test_killed_within_transactions(tmp_path: Path) -> None:
    path = tmp_path / "log"
    EventLog.create(path, Payment, key="card", partitions=3)
    for fence in range(1, 7):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path), str(fence)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        with process:
            assert process.stdout.readline() == "go\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.05 + fence * 0.007)
            os.kill(process.pid, signal.SIGKILL)
    log = EventLog(path, Payment)
    log.register("uid", "out", 9)
    ledger = log.ledger("uid", "out")
    assert ledger is not None
    assert ledger.position is not None
    ids = sorted(i for p, end in log.ends().items() for b in log.read(p, 0, end) for i in b["id"].to_pylist())
    assert ids == list(range(ledger.position["in/0"]))
    assert len(ids) >= 6 * 20


def test_retention_waits_for_the_end_of_a_transaction() -> None:
    disk = SimulatedDisk()
    EventLog.create(PATH, Payment, disk=disk, clock=CLOCK, policy=Policy(segment_bytes=1500, retain_bytes=3000))
    log = open_log(disk, CLOCK)
    with log.transaction("uid", "out", 1) as transaction:
        for i in range(30):
            transaction.append(payments(i))
        assert log.start(0) == 0
        transaction.commit(row(1))
    assert 0 < log.start(0) < log.end(0) == 30


def test_a_damaged_ledger_is_never_answered_with_an_older_row() -> None:
    disk = SimulatedDisk()
    made(disk)
    log = open_log(disk, CLOCK)
    log.register("uid", "out", 1)
    for position in (1, 2, 3):
        with log.transaction("uid", "out", 1) as transaction:
            transaction.append(payments(*range(position * 20, position * 20 + 10)))
            transaction.commit(row(position))
    path = PATH / "transactions" / f"{0:020d}.arrow"
    second = disk.read(path).index(b'"position":{"in/0":2}')
    disk.flip(path, second + 18)
    reader = LogReader(PATH, Payment, disk=disk, clock=CLOCK)
    for question in (
        lambda: reader.ledger("uid", "out"),
        reader.ends,
        lambda: open_log(disk, CLOCK).register("uid", "out", 2),
    ):
        with pytest.raises(StreamworkError, match="SW-LOG-DAMAGED"):
            question()


def test_a_transaction_of_another_job_is_refused() -> None:
    disk = SimulatedDisk()
    made(disk)
    log = open_log(disk, CLOCK)
    log.register("uid", "out", 1)
    with pytest.raises(StreamworkError, match="SW-SINK-OWNED"), log.transaction("another", "out", 1):
        pass
