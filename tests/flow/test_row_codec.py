"""A few events without columns: the same events come out as by columns, and what does not fit goes as columns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamwork import Digits, Event
from streamwork.components.columns import Columns, as_columns, as_events
from streamwork.flow.row_codec import RowCodec


class Plain(Event):
    name: str
    number: int
    ratio: float
    flag: bool
    at: datetime
    note: str | None = None


class Nested(Event):
    tags: list[str]


class Priced(Event):
    price: Annotated[Decimal, Digits(9, 2)]


EVENTS = st.builds(
    Plain,
    name=st.text(st.characters(exclude_categories=["Cs"])),
    number=st.integers(-(1 << 63), (1 << 63) - 1),
    ratio=st.floats(allow_nan=False),
    flag=st.booleans(),
    at=st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
    note=st.none() | st.just("a"),
)


@given(st.lists(EVENTS, min_size=1, max_size=5))
def test_what_comes_out_is_what_comes_out_of_columns(events: list[Plain]) -> None:
    codec = RowCodec.of(Plain)
    assert codec is not None
    written = codec.encode(events)
    assert written is not None
    (columns,) = as_columns(Plain, [events], "test")
    assert isinstance(columns, Columns)
    assert codec.decode(written) == as_events(columns) == events


GOOD = {"name": "a", "number": 1, "ratio": 1.0, "flag": True, "at": datetime(2026, 1, 1, tzinfo=UTC)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": b"a"},
        {"name": "\udc80"},
        {"number": True},
        {"number": 1 << 63},
        {"number": 1.0},
        {"ratio": 1},
        {"flag": 1},
        {"at": datetime(2026, 1, 1)},
        {"note": 7},
        {"name": None},
    ],
)
def test_a_value_that_is_not_exactly_of_its_type_goes_as_a_column(wrong: dict[str, object]) -> None:
    codec = RowCodec.of(Plain)
    assert codec is not None and codec.encode([Plain(**GOOD)]) is not None
    assert codec.encode([Plain(**GOOD), Plain(**{**GOOD, **wrong})]) is None


def test_other_time_zones_keep_the_moment() -> None:
    codec = RowCodec.of(Plain)
    assert codec is not None
    at = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    written = codec.encode([Plain(**{**GOOD, "at": at})])
    assert written is not None and codec.decode(written)[0].at == at


@pytest.mark.parametrize("kind", [Nested, Priced])
def test_types_that_need_columns(kind: type[Event]) -> None:
    assert RowCodec.of(kind) is None
