"""Key groups: golden vectors, in Python and in Spark."""

from __future__ import annotations

import zlib
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamwork import Digits, Event
from streamwork.components.columns import to_batch
from streamwork.components.keys import GROUPS, SHORT, Key, canonical, instance_of

# (key value, canonical bytes, group of 256). Other languages must agree; do not change them.
VECTORS: list[tuple[Any, bytes, int]] = [
    ("", b"", 0),
    ("card-1", b"card-1", 148),
    ("Zürich", "Zürich".encode(), 62),
    (0, b"0", 33),
    (-17, b"-17", 28),
    (2**62, b"4611686018427387904", 200),
    (True, b"true", 141),
    (False, b"false", 48),
    (b"\x00\xff", b"\x00\xff", 114),
    (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), b"1767323045000006", 91),
    (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), b"-1", 42),
    (date(1970, 1, 2), b"1", 183),
    (Decimal("12.50"), b"12.50", 241),
    (None, b"\x00", 141),
    (("a", 1), b"\x00\x00\x00\x01a\x00\x00\x00\x011", 70),
    (("a", None), b"\x00\x00\x00\x01a\xff\xff\xff\xff", 21),
    (("", ""), b"\x00" * 8, 105),
]


@pytest.mark.parametrize(("value", "expected", "group"), VECTORS)
def test_golden_vectors(value: Any, expected: bytes, group: int) -> None:
    assert canonical(value) == expected
    assert zlib.crc32(expected) % GROUPS == group
    assert Key(("k",) if not isinstance(value, tuple) else ("a", "b")).groups([value]) == [group]


@pytest.mark.slow
@pytest.mark.spark
def test_spark_s_crc32_gives_the_same_groups(spark: Any) -> None:
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    rows = spark.createDataFrame(
        [(bytearray(expected), group) for _, expected, group in VECTORS], "bytes binary, group int"
    )
    answers = rows.select((F.crc32("bytes") % GROUPS).alias("ours"), "group").collect()
    assert [row.ours for row in answers] == [row.group for row in answers]


def test_the_same_moment_in_another_zone_is_the_same_key() -> None:
    there = timezone(timedelta(hours=5, minutes=30))
    assert canonical(datetime(2026, 1, 1, 5, 30, tzinfo=there)) == canonical(datetime(2026, 1, 1, tzinfo=UTC))


def test_decimals_are_taken_at_their_scale() -> None:
    class Priced(Event):
        price: Annotated[Decimal, Digits(10, 2)]
        name: str

    single, double = Key.of(Priced, "price"), Key.of(Priced, ["price", "name"])
    assert single.groups([Decimal("1.5"), Decimal("1.50")]) == [zlib.crc32(b"1.50") % GROUPS] * 2
    assert len(set(double.groups([(Decimal("1.5"), "a"), (Decimal("1.50"), "a")]))) == 1


class Keyed(Event):
    text: str | None
    number: int | None
    flag: bool | None
    raw: bytes | None
    at: datetime | None
    day: date | None
    price: Annotated[Decimal, Digits(10, 2)] | None


moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.replace(tzinfo=UTC))
prices = st.decimals(Decimal(-99_999_999), Decimal(99_999_999), places=2, allow_nan=False)
values = {
    "text": st.text(max_size=40),
    "number": st.integers(-(2**63), 2**63 - 1),
    "flag": st.booleans(),
    "raw": st.binary(max_size=40),
    "at": moments,
    "day": st.dates(),
    "price": prices,
}
keyed = st.builds(Keyed, **{name: st.none() | some for name, some in values.items()})


@given(
    st.lists(keyed, min_size=1, max_size=30),
    st.lists(st.sampled_from(sorted(values)), min_size=1, unique=True),
    st.sampled_from([1, SHORT + 2]),
)
def test_columns_have_the_groups_of_their_values(events: list[Keyed], fields: list[str], times: int) -> None:
    """In few rows, and in many."""
    events *= times
    key, batch = Key.of(Keyed, fields), to_batch(Keyed, events, "here")
    wanted = key.groups(key.values(events), 1000)
    for cut in (0, 1):  # a slice begins in the middle of its buffers
        columns = [batch.slice(cut).column(name) for name in fields]
        assert key.column_groups(columns, 1000).tolist() == wanted[cut:]
        instances = key.column_instances(columns, 7, 1000).tolist()
        assert instances == [instance_of(group, 7, 1000) for group in wanted[cut:]]


def test_columns_of_many_rows_have_the_groups_of_their_values() -> None:
    names = [f"{'x' * (n % 70)}{n}" for n in range(40_000)]
    assert Key(("text",)).column_groups([pa.array(names)]).tolist() == Key(("text",)).groups(names)


parts = st.none() | st.text(max_size=3) | st.binary(max_size=3)


@given(st.tuples(parts, parts), st.tuples(parts, parts))
def test_different_composites_have_different_bytes(a: tuple[Any, Any], b: tuple[Any, Any]) -> None:
    as_bytes = [tuple(p.encode() if isinstance(p, str) else p for p in key) for key in (a, b)]
    assert (canonical(a) == canonical(b)) == (as_bytes[0] == as_bytes[1])


@given(st.integers(1, 256), st.integers(1, 256))
def test_instances_share_the_groups_evenly_and_in_order(groups: int, parallelism: int) -> None:
    instances = [instance_of(group, parallelism, groups) for group in range(groups)]
    assert instances == sorted(instances)
    assert instances[0] >= 0 and instances[-1] < parallelism
    sizes = [instances.count(i) for i in range(parallelism)]
    assert max(sizes) - min(sizes) <= 1
