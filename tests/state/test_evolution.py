"""Stored columns against those of today: what is brought over, what is refused, and how the key is told from the record."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pytest

from streamwork import Digits, Event, Record
from streamwork.components import Key
from streamwork.components.parquet_file import from_bytes, to_bytes
from streamwork.state.evolution import KEY, VERSION, version_of, widens
from streamwork.state.keyed import KeyedState
from streamwork.state.merge import merge
from streamwork.state.rows import RowFormat


class Order(Event):
    shop: str
    number: int
    price: Annotated[Decimal, Digits(8, 2)] = Decimal(0)


class Kept(Record):
    seen: int = 0
    text: str = ""


def rows(record: type[Record] = Kept, *key: str, event: type[Event] = Order) -> RowFormat:
    return RowFormat("part", event, Key.of(event, key or ("shop", "number")), record, 256)


def stored(kind: RowFormat, record: Any, *keys: Any) -> pa.Table:
    state = KeyedState()
    for key in keys:
        state.records[key] = record
        state.changed.add(key)
    return from_bytes(to_bytes(kind.encode(state, 1, everything=True)))


def test_a_file_says_what_its_key_is_and_survives_merging() -> None:
    class Second(Record):
        schema_version: ClassVar[int] = 2
        seen: int = 0

    table = stored(rows(Second), Second(), ("a", 1), ("b", 2))
    for one in (table, merge([table, table], ["shop", "number"])):
        assert one.schema.metadata == {VERSION: b"2", KEY: b'["shop", "number"]'}
        assert version_of(one.schema) == 2
    assert version_of(rows().schema) == 1


class Wide(Event):
    shop: str
    number: int
    price: Annotated[Decimal, Digits(18, 2)] = Decimal(0)


class Finer(Event):
    shop: str
    number: int
    price: Annotated[Decimal, Digits(18, 3)] = Decimal(0)


class Rewritten(Record):
    schema_version: ClassVar[int] = 2

    @classmethod
    def migrate(cls, row: dict[str, Any], version: int) -> Rewritten:
        return cls()


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (rows(), rows(), ""),
        (rows(), rows(Kept, "number", "shop"), "the key was shop, number and is now number, shop"),
        (rows(), rows(Kept, "shop"), "the key was shop, number and is now shop"),
        (rows(Kept, "shop"), rows(), "number (int64) is new in the key"),
        (rows(Kept, "price"), rows(Kept, "price", event=Wide), ""),
        (
            rows(Kept, "price", event=Wide),
            rows(Kept, "price"),
            "price was decimal128(18, 2) and is now decimal128(8, 2)",
        ),
        (rows(Kept, "price"), rows(Kept, "price", event=Finer), "price was decimal128(8, 2)"),
        (rows(), rows(Rewritten, "number", "shop"), "the key was shop, number"),  # no migrate can help
    ],
)
def test_the_key(before: RowFormat, now: RowFormat, says: str) -> None:
    found = "; ".join(now.misfits(before.schema).key)
    assert says in found if says else not found
    # Files of earlier releases say nothing about their key: its columns come first.
    if "is now shop" not in says:
        old = "; ".join(now.misfits(before.schema.remove_metadata()).key)
        assert says.partition(" and")[0].replace("the key was ", "") in old if says else not old


def test_a_record_field_that_joins_the_key_is_found() -> None:
    class Numbered(Record):
        number: int = 0
        text: str = ""

    class Rest(Record):
        text: str = ""

    assert "the key was shop" in "; ".join(rows(Rest).misfits(rows(Numbered, "shop").schema).key)


def test_wider_types() -> None:
    money, more, finer = pa.decimal128(8, 2), pa.decimal128(30, 2), pa.decimal128(30, 3)
    assert widens(money, more)
    assert widens(pa.list_(money), pa.list_(more))
    assert not widens(more, money)
    assert not widens(money, finer)
    assert not widens(pa.int64(), pa.float64())
    assert not widens(pa.list_(money), pa.list_(pa.field("item", more, nullable=False)))


class Lists(Record):
    prices: list[Annotated[Decimal, Digits(6, 2)]] = []
    total: Annotated[Decimal, Digits(6, 2)] = Decimal(0)


class WideLists(Record):
    renamed_from: ClassVar = {"sum": "total"}
    total: int = 7  # a new field, under the name that another one had
    prices: list[Annotated[Decimal, Digits(20, 2)]] = []
    sum: Annotated[Decimal, Digits(20, 2)] = Decimal(0)


def test_rows_are_brought_over() -> None:
    before, now = rows(Lists, "shop"), rows(WideLists, "shop")
    table = stored(before, Lists([Decimal("1.50")], Decimal("2.25")), "a")
    assert not now.misfits(table.schema)
    brought = now.evolution(table)
    assert brought.schema.equals(now.schema, check_metadata=True)
    (record,) = now.records(brought)
    assert record == WideLists(7, [Decimal("1.50")], Decimal("2.25"))


def test_what_is_not_dropped_is_refused_and_named() -> None:
    class Less(Record):
        seen: int = 0

    before, now = rows(), rows(Less)
    assert now.misfits(before.schema).gone == ("text (string) is no longer there",)
    assert not now.misfits(before.schema, ["text"])
    (record,) = now.records(now.evolution(stored(before, Kept(5, "x"), ("a", 1))))
    assert record == Less(5)
