"""Damage, locks, full disks, rolling and retention, on real files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from log.world import PATH, HandClock, Payment, everything, open_log, payments
from streamwork.errors import StreamworkError
from streamwork.log import EventLog, LogReader, Policy
from streamwork.log.policy import SegmentFacts, must_roll, removable
from streamwork.testing.disk import SimulatedDisk


def segments(path: Path, partition: int = 0) -> list[Path]:
    return sorted((path / str(partition)).glob("*.arrow"))


def flip(path: Path, position: int, bit: int = 3) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def small(path: Path, count: int = 40, **options: object) -> EventLog[Payment]:
    """A log of several segments with two events in each batch."""
    log = EventLog.create(path, Payment, policy=Policy(segment_bytes=5000), **options)  # type: ignore[arg-type]
    for i in range(0, count, 2):
        log.append(payments(i, i + 1))
    log.close()
    return log


@pytest.mark.slow
def test_every_flipped_bit_of_a_segment_is_an_error_or_harmless(path: Path) -> None:
    small(path, 8)
    (segment,) = segments(path)
    good = segment.read_bytes()
    refused = 0
    for position in range(len(good)):
        segment.write_bytes(good[:position] + bytes([good[position] ^ 1 << position % 8]) + good[position + 1 :])
        for index in (True, False):
            if not index:
                segment.with_suffix(".index").unlink(missing_ok=True)
            try:
                found = everything(LogReader(path, Payment))
            except StreamworkError as error:
                assert error.code == "SW-LOG-DAMAGED"
                assert segment.name in error.cause
                refused += 1
            else:
                assert found == payments(*range(8))  # a bit that means nothing, in the padding of the schema
    assert refused > 1.8 * len(good)


def test_negative_control_without_the_crc_a_flipped_bit_is_served(path: Path) -> None:
    small(path, 8)
    (segment,) = segments(path)
    data = segment.read_bytes()
    flip(segment, data.rindex(b"card-7") + 5)
    with pytest.raises(StreamworkError, match="SW-LOG-DAMAGED"):
        everything(LogReader(path, Payment))
    assert everything(LogReader(path, Payment, verify=False)) != payments(*range(8))


def test_what_comes_before_the_damage_can_be_read_and_what_comes_after_it_too(path: Path) -> None:
    small(path, 8)
    (segment,) = segments(path)
    flip(segment, segment.read_bytes().index(b"card-2card-3"))
    log = EventLog(path, Payment)
    assert log.pull() == payments(0, 1)
    with pytest.raises(StreamworkError, match="offset 2"):
        log.pull()
    log.seek(4)
    assert log.pull() == payments(4, 5, 6, 7)


@pytest.mark.parametrize("harm", ["missing", "garbage", "flipped", "stale"])
def test_an_index_is_rebuilt_when_it_is_missing_or_wrong(path: Path, harm: str) -> None:
    small(path, 40)
    first, second = segments(path)[:2]
    index = first.with_suffix(".index")
    good = index.read_bytes()
    if harm == "missing":
        index.unlink()
    elif harm == "garbage":
        index.write_bytes(b"not an index")
    elif harm == "flipped":
        flip(index, len(good) // 2)
    else:  # a whole index of other batches
        other = path.parent / "other"
        with EventLog.create(other, Payment) as log:
            log.append(payments(*range(int(second.stem))))
        index.write_bytes((other / "0" / index.name).read_bytes())
    assert everything(LogReader(path, Payment)) == payments(*range(40))
    assert index.read_bytes() == good


def test_a_missing_segment_is_damage(path: Path) -> None:
    small(path, 60)
    segments(path)[1].unlink()
    with pytest.raises(StreamworkError, match="SW-LOG-DAMAGED.*the next one begins"):
        everything(LogReader(path, Payment))


def test_damaged_settings(path: Path) -> None:
    small(path, 2)
    settings = (path / "log.json").read_text()
    (path / "log.json").write_text(settings.replace('"groups": 256', '"groups": 128'))
    with pytest.raises(StreamworkError, match="SW-LOG-DAMAGED"):
        EventLog(path, Payment)


def test_retained_away_is_an_error_and_never_a_skip(path: Path) -> None:
    log = small(path, 60)
    gone = segments(path)[:2]
    reader = LogReader(path, Payment).cursor()
    for file in gone:
        file.unlink()
    for cursor in (LogReader(path, Payment).cursor({0: 0}), reader):
        with pytest.raises(StreamworkError, match=f"SW-LOG-GONE.*begins at offset {int(segments(path)[0].stem):,}"):
            cursor.pull(10)
    log.seek("start")
    assert log.pull(1) == payments(int(segments(path)[0].stem))


def test_retention_by_age_and_size_spares_what_consumers_need(path: Path) -> None:
    clock = HandClock()
    policy = Policy(segment_bytes=5000, retain_age=100, retain_bytes=12_000)
    log = EventLog.create(path, Payment, policy=policy, clock=clock)
    log.consumers.keep("job", {0: 7})
    for i in range(0, 60, 2):
        log.append(payments(i, i + 1))
        clock.time += 1
    assert log.start(0) == 0  # the segment with offset 7
    log.consumers.keep("job", {0: 20}, source="other")
    log.retain()
    assert log.start(0) == 0  # the main source still needs it
    log.consumers.keep("job", {0: 31})
    log.consumers.keep("job", {0: 31}, source="other")
    log.retain()
    assert 0 < log.start(0) <= 31
    size = sum(file.stat().st_size for file in segments(path))
    log.consumers.forget("job")
    log.retain()
    assert sum(file.stat().st_size for file in segments(path)) <= min(size, 12_000)
    clock.time += 1000
    log.retain()
    assert len(segments(path)) == 1  # the active one always stays
    assert {p.stem for p in (path / "0").glob("*.index")} <= {p.stem for p in segments(path)}
    assert log.end(0) == 60
    log.close()


def test_a_damaged_consumer_file_stops_retention_not_appends(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    policy = Policy(segment_bytes=5000, retain_bytes=6000)
    log = EventLog.create(path, Payment, policy=policy)
    log.consumers.keep("job", {0: 100})
    (path / "consumers" / "job.json").write_text("?")
    for i in range(0, 60, 2):
        log.append(payments(i, i + 1))
    assert log.start(0) == 0
    assert "SW-LOG-DAMAGED" in caplog.text
    log.close()


def test_names_of_consumers_stay_inside_the_folder(path: Path) -> None:
    with EventLog.create(path, Payment) as log:
        for name in ("../x", "", "a b", "x" * 65, "a/b"):
            with pytest.raises(StreamworkError, match="SW-LOG-NAME"):
                log.consumers.keep(name, {0: 0})
            with pytest.raises(StreamworkError, match="SW-LOG-NAME"):
                log.register(name, "sink", 1)


def test_segments_roll_by_age(path: Path) -> None:
    clock = HandClock()
    with EventLog.create(path, Payment, policy=Policy(segment_age=60), clock=clock) as log:
        for i in range(10):
            log.append(payments(i))
            clock.time += 25
        assert [int(file.stem) for file in segments(path)] == [0, 3, 6, 9]


def test_rolling_is_a_pure_decision() -> None:
    policy = Policy(segment_bytes=100, segment_age=10)
    assert not must_roll(policy, 0, None, 1000, 0)
    assert not must_roll(policy, 60, 0.0, 40, 9.9)
    assert must_roll(policy, 60, 0.0, 41, 0)
    assert must_roll(policy, 60, 0.0, 1, 10)


def test_retention_is_a_pure_decision() -> None:
    finished = [SegmentFacts(i * 10, i * 10 + 10, 100, float(i)) for i in range(5)]
    assert removable(Policy(), finished, 100, 50, 1e9) == 0
    assert removable(Policy(retain_bytes=350), finished, 100, 50, 0) == 3
    assert removable(Policy(retain_bytes=350), finished, 100, 19, 0) == 1
    assert removable(Policy(retain_age=2), finished, 100, 50, 4.5) == 3
    assert removable(Policy(retain_age=2), finished, 100, 0, 4.5) == 0


def test_time_never_falls_within_a_partition(path: Path) -> None:
    clock = HandClock()
    with EventLog.create(path, Payment, clock=clock) as log:
        log.append(payments(1))
        clock.time -= 3600
        log.append(payments(2))
        times = [chunk.time for chunk in log.read_chunks(0, 0, log.end(0))]
        assert times == [1_000_000_000_000] * 2


def test_a_full_disk_is_an_error_and_the_log_stays_good() -> None:
    disk, clock = SimulatedDisk(), HandClock()
    EventLog.create(PATH, Payment, disk=disk, clock=clock)
    log = open_log(disk, clock)
    log.append(payments(1))
    for spare in (0, 1, 100, 600):
        disk.capacity = disk.used + spare
        with pytest.raises(StreamworkError, match="SW-LOG-FULL"):
            log.append(payments(*range(100)))
        assert everything(log) == payments(1)
        assert everything(open_log(disk, clock)) == payments(1)
    disk.capacity = None
    log.append(payments(2))
    assert everything(log) == payments(1, 2)
    disk.crash()
    assert everything(open_log(disk, clock))[:1] == payments(1)[: len(everything(open_log(disk, clock)))]


def test_a_disk_that_is_full_from_the_beginning() -> None:
    disk, clock = SimulatedDisk(), HandClock()
    EventLog.create(PATH, Payment, disk=disk, clock=clock)
    log = open_log(disk, clock)
    disk.capacity = disk.used + 10
    with pytest.raises(StreamworkError, match="SW-LOG-FULL"):
        log.append(payments(1))
    assert everything(open_log(disk, clock)) == []
    disk.capacity = None
    log.append(payments(2))
    assert everything(open_log(disk, clock)) == payments(2)


def test_a_full_disk_while_rolling() -> None:
    disk, clock = SimulatedDisk(), HandClock()
    EventLog.create(PATH, Payment, disk=disk, clock=clock, policy=Policy(segment_bytes=1500))
    log = open_log(disk, clock)
    kept: list[int] = []
    for i in range(40):
        disk.capacity = disk.used + (200 if i % 3 else 5000)
        try:
            log.append(payments(i))
            kept.append(i)
        except StreamworkError as error:
            assert error.code == "SW-LOG-FULL"
    assert everything(open_log(disk, clock)) == payments(*kept)
    assert 3 < len(kept) < 40


def test_a_failed_sync_is_not_an_acknowledgement_and_the_next_append_looks_anew() -> None:
    disk, clock = SimulatedDisk(), HandClock()
    EventLog.create(PATH, Payment, disk=disk, clock=clock)
    log = open_log(disk, clock, fsync="always")
    log.append(payments(1))
    disk.fail_at(disk.steps + 2)  # write, then sync
    with pytest.raises(StreamworkError, match="SW-LOG-IO"):
        log.append(payments(2))
    log.append(payments(3))
    assert everything(log) == payments(1, 2, 3)  # 2 was written; nobody was told that it was


HOLD = """
import sys
from streamwork.log import EventLog
log = EventLog(sys.argv[1])
log.append(log.event(0, "other", 1.0))
print("ready", flush=True)
sys.stdin.read()
"""


def test_one_writer_per_partition_and_the_error_names_it(path: Path) -> None:
    EventLog.create(path, Payment).close()
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    with other:
        assert other.stdout.readline() == "ready\n"
        log = EventLog(path, Payment, lock_timeout=0.05)
        with pytest.raises(StreamworkError, match=f"SW-LOG-LOCKED: process {other.pid} on "):
            log.append(payments(1))
        with pytest.raises(StreamworkError, match="SW-LOG-LOCKED"), log.transaction("u", "s", 1):
            pass
        assert log.pull() == [Payment(0, "other", 1.0)]  # reading needs no lock
        other.kill()
        other.wait()
        log.append(payments(1))  # the lock went with its process
        assert log.pull() == payments(1)
        with pytest.raises(StreamworkError, match=f"process {os.getpid()}"):
            EventLog(path, Payment, lock_timeout=0).append(payments(2))
        log.close()
        EventLog(path, Payment).append(payments(2))


def test_a_forked_child_does_not_keep_the_lock(path: Path) -> None:
    log = EventLog.create(path, Payment, lock_timeout=0)
    log.append(payments(1))
    if (child := os.fork()) == 0:
        try:
            log.append(payments(2))
        except StreamworkError as error:
            os._exit(7 if error.code == "SW-LOG-LOCKED" else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    log.append(payments(3))
    assert everything(log) == payments(1, 3)
    log.close()


def test_a_reader_keeps_up_with_rolling_and_retention_and_misses_nothing(path: Path) -> None:
    policy = Policy(segment_bytes=3000, retain_bytes=10_000)
    writer = EventLog.create(path, Payment, policy=policy)
    reader = EventLog(path, Payment)
    reader.consumers.keep("job", {0: 0})
    thread = Thread(target=lambda: [writer.append(payments(2 * i, 2 * i + 1)) for i in range(400)])
    thread.start()
    seen: list[Payment] = []
    while len(seen) < 800:
        seen += reader.pull(37, timeout=10)
        reader.consumers.keep("job", reader.positions)
    thread.join()
    writer.append(payments(800))  # rolls sooner or later; what nobody needs goes
    writer.retain()
    writer.close()
    assert seen == payments(*range(800))
    assert 0 < reader.start(0) <= 800
    assert len(segments(path)) < 8
