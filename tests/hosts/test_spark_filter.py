"""A filter that Spark applies lets the same events through as Python and Arrow do."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expressions import Reading, expressions, reading_events
from streamwork.components.columns import to_batch
from streamwork.components.expression import Expression, field
from streamwork.components.predicates import CompareOp, Kind
from streamwork.hosts.spark_filter import SparkVisitor
from streamwork.job.push_down import is_exact

EXACT = expressions.filter(lambda expression: is_exact(expression, Reading))
SCANS = 8  # of the expressions, so many are also used as filters of a scan, which may pass over parts of a file


def truths(
    spark: Any,
    folder: Path,
    cases: list[Expression],
    batch: pa.RecordBatch,
    visitor: type[SparkVisitor] = SparkVisitor,
) -> tuple[list[Any], list[Any]]:
    """What Spark thinks of every expression and row, and which rows it lets through, in two actions."""
    from pyspark.sql import functions as f

    numbered = pa.Table.from_batches([batch]).append_column("__number", pa.array(range(batch.num_rows)))
    file = folder / "rows.parquet"
    pq.write_table(numbered, file, row_group_size=2)  # many small parts, each with statistics and a dictionary
    frame = spark.read.parquet(str(file))
    columns = [case.fold(Reading, visitor()) for case in cases]
    told = frame.select("__number", *(c.alias(f"c{i}") for i, c in enumerate(columns))).collect()
    known = {row[0]: list(row)[1:] for row in told}
    scans = [frame.where(c).select(f.lit(i), "__number") for i, c in enumerate(columns[:SCANS])]
    union = scans[0]
    for scan in scans[1:]:
        union = union.union(scan)
    kept: list[list[int]] = [[] for _ in scans]
    for case, number in union.collect():
        kept[case].append(number)
    return [list(column) for column in zip(*(known[n] for n in range(batch.num_rows)), strict=True)], kept


def check(spark: Any, folder: Path, cases: list[Expression], readings: list[Reading]) -> None:
    batch = to_batch(Reading, readings, "test")
    told, kept = truths(spark, folder, cases, batch)
    for place, case in enumerate(cases):
        expected = case.to_arrow(Reading)(batch).to_pylist()
        assert told[place] == expected, case
        if place < SCANS:
            assert sorted(kept[place]) == [n for n, truth in enumerate(expected) if truth], case


@pytest.mark.slow
@pytest.mark.spark
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases=st.lists(EXACT, min_size=30, max_size=40), readings=st.lists(reading_events(), min_size=10, max_size=40))
def test_spark_finds_the_same_truth_and_the_same_unknown(
    spark: Any, tmp_path_factory: Any, cases: list[Expression], readings: list[Reading]
) -> None:
    check(spark, tmp_path_factory.mktemp("rows"), cases, readings)


def reading(**given: Any) -> Reading:
    empty = dict.fromkeys(name for name in Reading.__struct_fields__ if name.startswith("maybe_"))
    plain: dict[str, Any] = {"text": "", "whole": 0, "real": 0.0, "flag": True, "raw": b"", "tags": []}
    times = {"when": datetime(2026, 1, 1, tzinfo=UTC), "day": date(2026, 1, 1)}
    return Reading(**{**plain, **empty, **times, "price": Decimal(0), **given})


class Unguarded(SparkVisitor):
    """As one would write it."""

    def field(self, name: str, kind: Kind, nullable: bool) -> Any:
        return self._spark.col(name)

    def compare(self, op: CompareOp, left: Any, right: Any, kind: Kind) -> Any:
        return super().compare(op, left, right, Kind.INT)


@pytest.mark.slow
@pytest.mark.spark
def test_what_spark_by_itself_would_see_differently(spark: Any, tmp_path: Path) -> None:
    real, maybe, whole = field("real"), field("maybe_real"), field("whole")
    cases = [
        real == real,
        real > 1.0,
        ~(real <= 1.0),
        real != maybe,
        real >= 0.0,  # the third and fourth reading share a part of the file, whose zeros are all negative
        real.is_in([0.0]),
        maybe == 0,
        whole == float(2**53),
        field("when") == datetime(1, 1, 1, tzinfo=UTC),
        field("when") < datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        field("day") == date(1, 1, 1),
        field("text") < "\U0001f600",  # behind \uffff in UTF-8, before it in UTF-16
        field("text").is_in([f"t{n}" for n in range(30)]),
        field("raw").is_in([bytes([n]) for n in range(30)]),
        field("maybe_text") != "a",
    ]
    readings = [
        reading(real=math.nan, maybe_real=None, whole=2**53 + 1, text="\uffff", maybe_text=None),
        reading(real=math.nan, maybe_real=math.nan, whole=-(2**63), text="t7", raw=b"\x07"),
        reading(real=-0.0, maybe_real=-0.0, when=datetime(1, 1, 1, tzinfo=UTC), day=date(1, 1, 1)),
        reading(real=-0.0, maybe_real=-0.0, whole=2**63 - 1, text="a\x00", maybe_text="a\x00", raw=b"\xff"),
        reading(real=math.inf, maybe_real=5e-324, text="A", maybe_text="A", raw=b""),
        reading(real=-math.inf, maybe_real=1.5, day=date(9999, 12, 31)),
    ]
    check(spark, tmp_path, cases, readings)
    # The negative control: NaN is compared, and a zero that a file knows by another sign is passed over.
    batch = to_batch(Reading, readings, "test")
    told, kept = truths(spark, tmp_path, cases, batch, Unguarded)
    expected = [case.to_arrow(Reading)(batch).to_pylist() for case in cases]
    assert [place for place, _ in enumerate(cases) if told[place] != expected[place]] == [0, 1, 3, 4]
    assert kept[5] == kept[6] == [] and told[5] == expected[5] and any(told[5]), "equal, and yet not found by a scan"
