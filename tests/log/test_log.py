"""What a user does with a log: append, seek, pull, tail."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from log.world import HandClock, Payment, payments
from streamwork.components import Event
from streamwork.errors import StreamworkError
from streamwork.log import EventLog, LogReader, Policy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def code(error: pytest.ExceptionInfo[StreamworkError]) -> str:
    assert error.value.cause
    assert error.value.action
    return error.value.code


def test_append_one_many_or_a_batch_and_pull_them_in_order(path: Path) -> None:
    with EventLog.create(path, Payment) as log:
        assert log.append(payments(0)[0]) == {0: range(1)}
        assert log.append(payments(1, 2)) == {0: range(1, 3)}
        batch = pa.RecordBatch.from_pylist([{"id": 3, "card": "c", "amount": 1.5}])
        assert log.append(batch) == {0: range(3, 4)}
        assert log.append([]) == {}
        assert [e.id for e in log.pull(3)] == [0, 1, 2]
        assert log.positions == {0: 3}
        assert log.pull() == [Payment(3, "c", 1.5)]
        assert log.pull(timeout=0.01) == []


def test_a_log_can_be_opened_without_its_class(path: Path) -> None:
    with EventLog.create(path, Payment, key="card", partitions=3) as log:
        log.append(payments(*range(20)))
    found = EventLog(path).pull()
    assert sorted(e.id for e in found) == list(range(20))
    assert type(found[0]).__name__ == "Payment"


def test_segments_are_arrow_streams_that_pyarrow_reads_alone(path: Path) -> None:
    with EventLog.create(path, Payment) as log:
        log.append(payments(*range(5)))
        log.append(payments(5, 6))
    with pa.ipc.open_stream(path / "0" / f"{0:020d}.arrow") as stream:
        assert stream.schema == log.settings.schema
        batches = [stream.read_next_batch_with_custom_metadata() for _ in range(2)]
    assert [row["id"] for batch, _ in batches for row in batch.to_pylist()] == list(range(7))
    assert b'"base":5,"rows":2' in batches[1][1][b"streamwork"]


def test_equal_keys_meet_in_one_partition_in_order(path: Path) -> None:
    log = EventLog.create(path, Payment, key="card", partitions=4)
    for first in range(0, 600, 60):
        log.append(payments(*range(first, first + 60)))
    seen: dict[str, tuple[int, int]] = {}
    for partition in log.partitions():
        for chunk in log.read_chunks(partition, 0, log.end(partition)):
            for one in log.locate(chunk):
                where, last = seen.get(one.event.card, (partition, -1))
                assert where == partition
                assert one.event.id > last
                seen[one.event.card] = (partition, one.event.id)
    assert len(seen) == 13
    assert len({where for where, _ in seen.values()}) > 1
    log.close()


def test_without_a_key_appends_go_round_the_partitions(path: Path) -> None:
    with EventLog.create(path, Payment, partitions=3) as log:
        assert [list(log.append(payments(i))) for i in range(4)] == [[0], [1], [2], [0]]


def test_composite_and_null_keys(path: Path) -> None:
    class Visit(Event):
        user: str | None
        page: int

    with EventLog.create(path, Visit, key=("user", "page"), partitions=8) as log:
        visits = [Visit(user, page) for user in ("a", None, "b") for page in range(20)]
        log.append(visits)
        log.append(visits)
        for partition in log.partitions():
            here = [one.event for c in log.read_chunks(partition, 0, log.end(partition)) for one in log.locate(c)]
            assert here[: len(here) // 2] == here[len(here) // 2 :]


def test_seek_to_offset_time_start_and_end(path: Path) -> None:
    clock = HandClock()
    log = EventLog.create(path, Payment, clock=clock, policy=Policy(segment_bytes=2000))
    for i in range(30):
        log.append(payments(2 * i, 2 * i + 1))
        clock.time += 10
    began = datetime.fromtimestamp(1_000_000, UTC)
    for where, expected in [
        (17, 17),
        ("start", 0),
        (began + timedelta(seconds=100), 20),
        (began + timedelta(seconds=101), 22),
        (began - timedelta(days=1), 0),
        ({0: 5}, 5),
    ]:
        log.seek(where)
        assert [e.id for e in log.pull(2)] == [expected, expected + 1]
    for where in ("end", began + timedelta(days=1), 60):
        log.seek(where)
        assert log.pull() == []
    assert len(list((path / "0").glob("*.arrow"))) > 3
    log.close()


@pytest.mark.parametrize("where", ["middle", -1, True, 1.5, datetime(2026, 1, 1)])
def test_a_strange_place_is_refused(path: Path, where: object) -> None:
    with EventLog.create(path, Payment) as log, pytest.raises(StreamworkError) as error:
        log.seek(where)  # type: ignore[arg-type]
    assert code(error) == "SW-LOG-SEEK"


def test_an_offset_alone_means_nothing_in_several_partitions(path: Path) -> None:
    with EventLog.create(path, Payment, partitions=2) as log:
        with pytest.raises(StreamworkError, match="SW-LOG-SEEK"):
            log.seek(3)
        log.seek(0, partition=1)


def test_beyond_the_end_is_an_error_not_a_wait(path: Path) -> None:
    with EventLog.create(path, Payment) as log:
        log.append(payments(1))
        log.seek(5)
        with pytest.raises(StreamworkError) as error:
            log.pull(timeout=1)
        assert code(error) == "SW-LOG-AHEAD"


def test_read_is_exact_to_the_offset(path: Path) -> None:
    with EventLog.create(path, Payment) as log:
        for first in range(0, 100, 10):
            log.append(payments(*range(first, first + 10)))
    reader = LogReader(path, Payment)
    for start, end in [(0, 100), (3, 4), (9, 11), (25, 61), (50, 50), (99, 100)]:
        read = [i for batch in reader.read(0, start, end) for i in batch.column("id").to_pylist()]
        assert read == list(range(start, end))


def test_tail_gives_the_newest_and_then_the_new(path: Path) -> None:
    log = EventLog.create(path, Payment, key="card", partitions=2)
    for i in range(10):
        log.append(payments(i))
    tail = log.tail(last=3)
    assert [next(tail).id for _ in range(3)] == [7, 8, 9]
    log.append(payments(10))
    assert next(tail).id == 10
    log.close()


def test_another_type_is_refused_with_the_difference(path: Path) -> None:
    class Other(Event):
        id: int
        card: str
        amount: int

    EventLog.create(path, Payment).close()
    with pytest.raises(StreamworkError, match="amount: double not null in the log, int64 not null in Other") as error:
        EventLog(path, Other)
    assert code(error) == "SW-LOG-SCHEMA"


def test_a_log_is_made_once(path: Path) -> None:
    EventLog.create(path, Payment, key="card", partitions=2)
    with pytest.raises(StreamworkError, match="SW-LOG-EXISTS"):
        EventLog.create(path, Payment, key="card", partitions=2)
    EventLog.create(path, Payment, key="card", partitions=2, exist_ok=True)
    with pytest.raises(StreamworkError, match="SW-LOG-EXISTS"):
        EventLog.create(path, Payment, key="card", partitions=3, exist_ok=True)
    with pytest.raises(StreamworkError, match="SW-LOG-MISSING"):
        EventLog(path / "nowhere", Payment)


@pytest.mark.parametrize(
    "options",
    [{"partitions": 0}, {"partitions": 300}, {"policy": Policy(segment_bytes=0)}, {"policy": Policy(retain_age=-1)}],
)
def test_settings_that_cannot_be(path: Path, options: dict[str, object]) -> None:
    with pytest.raises(StreamworkError, match="SW-LOG-SETTING"):
        EventLog.create(path, Payment, **options)  # type: ignore[arg-type]
    assert not path.exists()


def test_modes_that_are_not_known(path: Path) -> None:
    EventLog.create(path, Payment)
    for options in ({"fsync": "sometimes"}, {"isolation": "dirty"}):
        with pytest.raises(StreamworkError, match="SW-LOG-SETTING"):
            EventLog(path, Payment, **options)  # type: ignore[arg-type]


def test_a_batch_must_have_the_columns_and_no_nulls(path: Path) -> None:
    with EventLog.create(path, Payment) as log:
        with pytest.raises(StreamworkError, match="SW-TYPE-EVENT"):
            log.append(pa.RecordBatch.from_pylist([{"id": 3, "card": "c"}]))
        with pytest.raises(StreamworkError, match="SW-TYPE-VALUE"):
            log.append(pa.RecordBatch.from_pylist([{"id": 3, "card": None, "amount": 1.0}], schema=log.settings.schema))
        with pytest.raises(StreamworkError, match="SW-TYPE-VALUE"):
            log.append(Payment(1.5, "c", 1.0))  # type: ignore[arg-type]
        assert log.end(0) == 0


def test_large_batches_become_several_frames(path: Path) -> None:
    class Blob(Event):
        data: bytes

    with EventLog.create(path, Blob) as log:
        log.append([Blob(bytes(1 << 20)) for _ in range(40)])
        assert [b.num_rows for b in log.read(0, 0, 40)] == [15, 15, 10]


def test_appending_and_reading_in_two_threads(path: Path) -> None:
    from threading import Thread

    with EventLog.create(path, Payment, policy=Policy(segment_bytes=20_000)) as log:
        thread = Thread(target=lambda: [log.append(payments(i)) for i in range(300)])
        thread.start()
        seen: list[int] = []
        while len(seen) < 300:
            seen += [e.id for e in log.pull(timeout=5)]
        thread.join()
    assert seen == list(range(300))
