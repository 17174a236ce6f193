"""What comes into a stage from Spark: parcels first, then the rows of each source, in order, complete, and each once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from frames import View, view, views
from streamwork import JobFailed
from streamwork.components.columns import to_batch
from streamwork.engine import Head, Kind, Parcel
from streamwork.hosts.spark_input import Arrivals
from streamwork.hosts.spark_rows import _encode
from streamwork.hosts.spark_table import LAST


def batches(*rows: tuple[int | None, int, Any], size: int) -> Iterator[pa.RecordBatch]:
    """Rows of a stage, as Spark gives them: (source, order, parcel, event or counts), some at a time."""
    events = pa.struct(list(to_batch(View, [view(0)], "test").schema))
    for at in range(0, len(rows), size):
        some = rows[at : at + size]
        content = [given if isinstance(given, View) else None for _, _, given in some]
        fields = [None if e is None else {name: getattr(e, name) for name in View.__struct_fields__} for e in content]
        yield pa.record_batch(
            {
                "__source": pa.array([source for source, _, _ in some], pa.int32()),
                "__order": pa.array([order for _, order, _ in some], pa.int64()),
                "head": pa.array([_encode(g.head) if isinstance(g, Parcel) else None for *_, g in some], pa.binary()),
                "content": pa.array([b"x" if isinstance(g, Parcel) else None for *_, g in some], pa.binary()),
                "__rows0": pa.array(fields, events),
                "__rows1": pa.array(fields, events),
                "__counts": pa.array([g if isinstance(g, list) else None for *_, g in some], pa.list_(pa.int64())),
            }
        )


PARCEL = Parcel(Head(Kind.CHECKPOINT, 1, (0, 0), "a", (1, 0), 0))
ROWS = [(None, 0, None), (None, 1, PARCEL), *((0, n, view(n)) for n in (3, 5, 6)), (0, LAST, [9, 5, 3])]
OTHERS = [(1, n, view(n)) for n in (1, 2)]


def reader(arrivals: Arrivals, number: int, *filters: str) -> Any:
    source = views(None)  # type: ignore[arg-type]
    return arrivals.reader(f"s{number}", number, filters, source.take)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 20])
def test_however_it_is_cut(size: int) -> None:
    arrivals = Arrivals(batches(*ROWS, *OTHERS, size=size))
    assert [parcel.head for parcel in arrivals.parcels()] == [PARCEL.head]
    pieces = list(reader(arrivals, 0, "first", "second")("0", 0, 10))
    assert [event.id for piece in pieces for event in piece.events] == [3, 5, 6]
    assert pieces[-1].left_out == {"first": 4, "second": 2}
    assert all(piece.left_out == {"first": 0, "second": 0} for piece in pieces[:-1])
    rest = list(reader(arrivals, 1)("0", 0, 10))
    assert [event.id for piece in rest for event in piece.events] == [1, 2]
    arrivals.drain()


def test_a_source_without_rows_is_passed_by() -> None:
    arrivals = Arrivals(batches(*OTHERS, size=9))
    assert list(arrivals.parcels()) == []
    assert list(reader(arrivals, 0)("0", 0, 10)) == []
    assert [len(piece.events) for piece in reader(arrivals, 1)("0", 0, 10)] == [2]


@pytest.mark.parametrize("size", [1, 2, 9])
def test_an_offset_that_comes_twice_is_noticed(size: int) -> None:
    arrivals = Arrivals(batches(*((0, n, view(n)) for n in (3, 5, 5)), size=size))
    list(arrivals.parcels())
    with pytest.raises(JobFailed, match="SW-SOURCE-OFFSET: s0: two rows have the offset 5"):
        list(reader(arrivals, 0)("0", 0, 10))


@pytest.mark.parametrize(("counts", "told"), [([9, 4], "counted 4 rows, and brought 3"), (None, "counted 0 rows")])
def test_rows_that_are_not_those_that_were_counted_are_noticed(counts: Any, told: str) -> None:
    rows: list[Any] = [(0, n, view(n)) for n in (3, 5, 6)]
    if counts:
        rows.append((0, LAST, counts))
    arrivals = Arrivals(batches(*rows, size=9))
    list(arrivals.parcels())
    with pytest.raises(JobFailed, match=f"SW-SOURCE-UNSTABLE: s0: of the offsets from 0 to 10 Spark {told}"):
        list(reader(arrivals, 0, "first")("0", 0, 10))


def test_what_makes_spark_run_a_task_is_no_parcel() -> None:
    arrivals = Arrivals(iter([pa.record_batch({"id": [0]})]))
    assert list(arrivals.parcels()) == []
