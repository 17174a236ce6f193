from __future__ import annotations

import pickle
import re
import sqlite3
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sample import Payment, run_job
from source_ends import end_of
from streamwork import Digits, Event, Job, JobFailed, Parquet, Refused, SqliteSink, WrongUse
from streamwork.components.columns import to_batch
from streamwork.components.field_types import relaxed
from streamwork.connectors import parquet
from streamwork.connectors.parquet import partition_name


class Place(Event):
    name: str
    height: float | None = None


class Everything(Event):
    text: str
    whole: int
    real: float
    flag: bool
    raw: bytes
    when: datetime
    day: date
    price: Annotated[Decimal, Digits(12, 2)]
    tags: list[str]
    sizes: dict[str, int]
    place: Place
    places: list[Place]
    maybe: int | None
    maybe_place: Place | None
    maybe_tags: list[int | None] | None


def write(file: Path, events: list[Any], kind: type[Event] = Payment, **options: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_batches([to_batch(kind, events, "test")])
    # Others write columns that may be null; and Parquet cannot hold a field that may not, below an event that is null.
    table = table.cast(pa.schema([pa.field(f.name, relaxed(f.type)) for f in table.schema]))
    pq.write_table(table, file, **options)
    return file


def read(source: Parquet[Any], partition: str, start: int = 0, end: int | None = None) -> tuple[list[Any], int]:
    pieces = list(source.read(partition, start, end_of(source, partition, start, 10**9) if end is None else end))
    return [event for piece in pieces for event in piece.events], sum(piece.dropped for piece in pieces)


def payments(count: int) -> list[Payment]:
    return [Payment(f"card-{i}", i) for i in range(count)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "payments.parquet"


small = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


@small
@given(
    count=st.integers(0, 40), group=st.integers(1, 15), max_events=st.integers(1, 50), piece=st.integers(1, 20)
)  # fmt: skip
def test_slices_of_any_size_give_every_row_once_in_order(
    monkeypatch: pytest.MonkeyPatch, file: Path, count: int, group: int, max_events: int, piece: int
) -> None:
    monkeypatch.setattr(parquet, "PIECE", piece)
    write(file, payments(count), row_group_size=group)
    source = Parquet(file, Payment)
    (partition,) = source.partitions()
    at, got = 0, []
    while (end := end_of(source, partition, at, max_events)) > at:
        events, _ = read(source, partition, at, end)
        assert len(events) == end - at <= max_events
        got, at = got + events, end
    assert got == payments(count)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
whole = st.integers(-(2**63), 2**63 - 1)
places = st.builds(Place, texts, st.none() | st.floats(allow_nan=False))
everything = st.builds(
    Everything,
    text=texts,
    whole=whole,
    real=st.floats(allow_nan=False),
    flag=st.booleans(),
    raw=st.binary(max_size=8),
    when=st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    day=st.dates(),
    price=st.decimals("-9999999999", "9999999999", places=2),
    tags=st.lists(texts, max_size=3),
    sizes=st.dictionaries(texts, whole, max_size=3),
    place=places,
    places=st.lists(places, max_size=3),
    maybe=st.none() | whole,
    maybe_place=st.none() | places,
    maybe_tags=st.none() | st.lists(st.none() | whole, max_size=3),
)


@small
@given(st.lists(everything, max_size=5))
def test_every_type_comes_back_as_pyarrow_wrote_it(file: Path, events: list[Everything]) -> None:
    source = Parquet(write(file, events, Everything), Everything)
    assert read(source, source.partitions()[0]) == (events, 0)


def test_row_groups_and_columns_that_are_not_asked_for_are_not_read(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    table = pa.table({"more": ["x"] * 50, "amount": range(50), "card": [str(i) for i in range(50)]})
    pq.write_table(table, file, row_group_size=10)
    asked: list[tuple[int, list[str]]] = []

    class Watched(pq.ParquetFile):
        def iter_batches(self, size: int, row_groups: list[int], columns: list[str], **options: Any) -> Any:
            asked.extend((group, columns) for group in row_groups)
            return super().iter_batches(size, row_groups=row_groups, columns=columns, **options)

    monkeypatch.setattr(parquet.pq, "ParquetFile", Watched)
    source = Parquet(file, Payment)
    (partition,) = source.partitions()
    assert [e.amount for e in read(source, partition, 15, 30)[0]] == list(range(15, 30))
    assert asked == [(1, ["card", "amount"]), (2, ["card", "amount"])]


def test_a_damaged_row_group_harms_only_those_who_read_it(file: Path) -> None:
    write(file, payments(30), row_group_size=10, compression="none", use_dictionary=False)
    data = bytearray(file.read_bytes())
    place = pq.ParquetFile(file).metadata.row_group(1).column(0).data_page_offset
    data[place : place + 8] = b"\xff" * 8
    file.write_bytes(data)
    source = Parquet(file, Payment)
    (partition,) = source.partitions()
    assert read(source, partition, 0, 10)[0] + read(source, partition, 20, 30)[0] == payments(10) + payments(30)[20:]
    with pytest.raises(JobFailed, match="SW-SOURCE-DAMAGED"):
        read(source, partition, 5, 15)


class TestFiles:
    def test_a_folder_with_all_below_it_and_what_comes_later(self, tmp_path: Path) -> None:
        source = Parquet(tmp_path, Payment)
        assert source.partitions() == []
        write(tmp_path / "b.parquet", payments(1))
        write(tmp_path / "day=1" / "a.parquet", payments(2))
        write(tmp_path / "_temporary" / "x.parquet", payments(9))
        write(tmp_path / ".half.parquet", payments(9))
        (tmp_path / "notes.txt").write_text("no data")
        first = source.partitions()
        assert [len(read(source, p)[0]) for p in first] == [1, 2]
        write(tmp_path / "a.parquet", payments(3))
        assert [len(read(source, p)[0]) for p in source.partitions()] == [3, 1, 2]
        assert set(first) < set(source.partitions())
        assert Parquet(tmp_path, Payment).partitions() == source.partitions()

    def test_a_pattern(self, tmp_path: Path) -> None:
        for day in ("2026-01", "2026-02", "2025-12"):
            write(tmp_path / day / "part.parquet", payments(1))
        source = Parquet(tmp_path / "2026-*" / "*.parquet", Payment)
        assert len(source.partitions()) == 2
        write(tmp_path / "2026-[x]" / "part.parquet", payments(4))
        assert len(Parquet(tmp_path / "2026-[x]", Payment).partitions()) == 1, "a name that is there is meant as it is"

    @given(st.lists(st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=90), unique=True, max_size=9))
    def test_names_of_partitions_are_names_and_never_shared(self, names: list[str]) -> None:
        made = [partition_name(Path(f"{name}.parquet")) for name in names if not re.search(r"[\ud800-\udfff]", name)]
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in made)
        assert len(set(made)) == len(made)

    def test_names_stay_the_same_for_ever(self) -> None:
        assert partition_name(Path("day=1/a b.parquet")) == "day-1-a-b-5a8d553e1edff439"

    def test_the_source_can_be_sent_to_workers(self, file: Path) -> None:
        source = Parquet(write(file, payments(3)), Payment)
        (partition,) = source.partitions()
        for sent in (source, Parquet(file, Payment)):
            assert read(pickle.loads(pickle.dumps(sent)), partition)[0] == payments(3)

    def test_what_is_not_there(self, tmp_path: Path) -> None:
        for path in (tmp_path / "no.parquet", tmp_path / "no" / "*.parquet"):
            with pytest.raises(JobFailed, match="SW-SOURCE-MISSING"):
                Parquet(path, Payment).partitions()

    def test_a_file_that_is_not_whole(self, file: Path) -> None:
        file.write_bytes(write(file, payments(3)).read_bytes()[:-10])
        source = Parquet(file, Payment)
        with pytest.raises(JobFailed, match="SW-SOURCE-DAMAGED"):
            end_of(source, source.partitions()[0], 0, 1)

    def test_a_file_that_is_gone_is_never_skipped(self, tmp_path: Path) -> None:
        file = write(tmp_path / "a.parquet", payments(3))
        source = Parquet(tmp_path, Payment)
        (partition,) = source.partitions()
        assert end_of(source, partition, 0, 2) == 2
        file.unlink()
        assert source.partitions() == [partition], "so that it is asked about"
        assert end_of(source, partition, 0, 2) == 0, "as long as nothing was read, nothing is missing"
        for other in (source, Parquet(tmp_path, Payment)):
            with pytest.raises(Refused, match="SW-SOURCE-GONE"):
                end_of(other, partition, 2, 1)
            with pytest.raises(Refused, match="SW-SOURCE-GONE"):
                read(other, partition, 0, 2)

    def test_a_file_that_shrank_is_refused(self, file: Path) -> None:
        source = Parquet(write(file, payments(30)), Payment)
        (partition,) = source.partitions()
        assert end_of(source, partition, 0, 20) == 20
        write(file, payments(10))
        with pytest.raises(Refused, match="SW-SOURCE-SHRUNK"):
            end_of(source, partition, 20, 1)
        with pytest.raises(Refused, match="SW-SOURCE-GONE"):
            read(source, partition, 0, 20)


def one(annotation: Any) -> type[Event]:
    return type("One", (Event,), {"__annotations__": {"x": annotation}, "__module__": __name__})


AT = datetime(2026, 1, 1, tzinfo=UTC)
FITTING: list[tuple[Any, pa.Array, Any]] = [
    (int, pa.array([7], pa.int8()), 7),
    (int, pa.array([7], pa.uint64()), 7),
    (float, pa.array([1.5], pa.float32()), 1.5),
    (float, pa.array([7], pa.int32()), 7.0),
    (str, pa.array(["a"], pa.large_string()), "a"),
    (str, pa.array(["a"]).dictionary_encode(), "a"),
    (bytes, pa.array([b"ab"], pa.binary(2)), b"ab"),
    (datetime, pa.array([AT], pa.timestamp("ms", "Europe/Berlin")), AT),
    (datetime, pa.array([AT], pa.timestamp("ns", "UTC")), AT),
    (date, pa.array([date(2026, 1, 1)], pa.date32()), date(2026, 1, 1)),
    (Annotated[Decimal, Digits(12, 2)], pa.array([Decimal("1.5")], pa.decimal128(5, 1)), Decimal("1.50")),
    (int | None, pa.nulls(1), None),
    (list[int], pa.array([[1]], pa.large_list(pa.int16())), [1]),
    (dict[str, int], pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())), {"a": 1}),
    (Place, pa.array([{"more": 1, "height": 2.0, "name": "x"}]), Place("x", 2.0)),
]


@pytest.mark.parametrize(("annotation", "column", "value"), FITTING)
def test_types_that_turn_into_the_field_s_without_loss(
    file: Path, annotation: Any, column: pa.Array, value: Any
) -> None:
    kind = one(annotation)
    pq.write_table(pa.table({"x": column}), file)
    source = Parquet(file, kind)
    (event,) = read(source, source.partitions()[0])[0]
    assert event.x == value and type(event.x) is type(value)


@pytest.mark.parametrize(
    ("annotation", "column"),
    [
        (int, pa.array([1.0])),
        (int, pa.array(["1"])),
        (int, pa.array([True])),
        (float, pa.array([1], pa.int64())),
        (str, pa.array([b"a"])),
        (bytes, pa.array(["a"])),
        (bool, pa.array([1])),
        (datetime, pa.array([1], pa.timestamp("us"))),
        (datetime, pa.array([date(2026, 1, 1)])),
        (date, pa.array([AT])),
        (Annotated[Decimal, Digits(12, 2)], pa.array([Decimal("1.505")])),
        (Annotated[Decimal, Digits(4, 2)], pa.array([Decimal("1.5")], pa.decimal128(5, 1))),
        (Annotated[Decimal, Digits(4, 2)], pa.array([1.5])),
        (list[int], pa.array([["a"]])),
        (list[int], pa.array([1])),
        (dict[str, int], pa.array([{"a": 1}])),
        (Place, pa.array([{"name": "x"}])),
        (Place, pa.array([{"name": 1, "height": 1.0}])),
    ],
)
def test_a_column_of_another_type_is_refused_by_name_before_a_row_is_read(
    file: Path, annotation: Any, column: pa.Array
) -> None:
    pq.write_table(pa.table({"x": column}), file)
    source = Parquet(file, one(annotation))
    with pytest.raises(JobFailed, match="column 'x' is .* does not fit One.x") as caught:
        end_of(source, source.partitions()[0], 0, 1)
    assert caught.value.code == "SW-SOURCE-SCHEMA"


def test_a_missing_column_is_named(file: Path) -> None:
    pq.write_table(pa.table({"card": ["a"]}), file)
    source = Parquet(file, Payment)
    with pytest.raises(JobFailed, match="no column 'amount'"):
        end_of(source, source.partitions()[0], 0, 1)


BAD: list[tuple[Any, pa.Array]] = [
    (int, pa.array([1, None, 3])),
    (int, pa.array([1, 2**63, 3], pa.uint64())),
    (datetime, pa.array([1000, 1001, 2000], pa.timestamp("ns", "UTC"))),
    (list[int], pa.array([[1], [None], []])),
    (Place, pa.array([{"name": n, "height": 1.0} for n in ("a", None, "b")])),
]


@pytest.mark.parametrize(("annotation", "column"), BAD)
def test_a_bad_value_names_file_row_and_field(file: Path, annotation: Any, column: pa.Array) -> None:
    pq.write_table(pa.table({"x": column}), file)
    source = Parquet(file, one(annotation))
    (partition,) = source.partitions()
    with pytest.raises(JobFailed, match=f"{re.escape(str(file))} row 1, field 'x'") as caught:
        read(source, partition)
    assert caught.value.code == "SW-SOURCE-BAD-EVENT"
    events, dropped = read(Parquet(file, one(annotation), on_error="drop"), partition)
    assert (len(events), dropped) == (2, 1)


def test_wrong_use() -> None:
    with pytest.raises(WrongUse, match="SW-JOB-SETTING"):
        Parquet("x", Payment, on_error="skip")  # type: ignore[arg-type]


def test_a_job_reads_files_as_they_come(tmp_path: Path) -> None:
    job = Job("files", checkpoint_every=0)
    source = Parquet(tmp_path / "in", Payment, max_events=10)
    job.source(source, id="payments").sink(SqliteSink(tmp_path / "out.db", "paid"), id="paid")
    for number in range(3):
        write(tmp_path / "in" / f"{number}.parquet", [Payment(str(number), i) for i in range(15)])
        run_job(job, tmp_path / "root")
    with sqlite3.connect(tmp_path / "out.db") as db:
        rows = db.execute("SELECT card, amount FROM paid").fetchall()
    assert sorted(rows) == [(str(number), i) for number in range(3) for i in range(15)]
