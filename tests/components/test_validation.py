"""The quick test of one event never passes what Arrow would refuse, and passes what is plainly right without asking Arrow."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamwork import Digits, Event, JobFailed
from streamwork.components.columns import to_batch
from streamwork.components.validation import check_fits, fitting


class Inner(Event):
    n: int
    note: str | None = None


class Everything(Event):
    text: str = "x"
    whole: int = 1
    maybe: int | None = None
    real: float = 1.5
    flag: bool = True
    raw: bytes = b"x"
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    day: date = date(2026, 1, 1)
    money: Annotated[Decimal, Digits(6, 2)] = Decimal("1.50")
    many: list[int] = []
    texts: list[str | None] = []
    named: dict[str, float] = {}
    inner: Inner = Inner(1)
    inners: list[Inner] = []


class Level(IntEnum):
    LOW = 1


class Colour(StrEnum):
    RED = "red"


GOOD: list[tuple[str, Any]] = [
    ("text", "é"),
    ("text", Colour.RED),
    ("whole", 2**63 - 1),
    ("whole", -(2**63)),
    ("whole", Level.LOW),
    ("maybe", 7),
    ("real", 3),
    ("real", float("nan")),
    ("real", np.float64(2.5)),
    ("at", datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))),
    ("many", [1, 2]),
    ("texts", ["a", None]),
    ("named", {"a": 1.0}),
    ("inner", Inner(2, "b")),
    ("inners", [Inner(1)]),
]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_what_is_plainly_right_needs_no_closer_look(name: str, value: Any) -> None:
    event = Everything(**{name: value})
    assert fitting(Everything)(event)
    to_batch(Everything, [event], "here")


STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(),
    st.just("\ud800"),
    st.binary(max_size=3),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.decimals(allow_nan=True),
    st.lists(st.one_of(st.integers(-(2**70), 2**70), st.text(max_size=2), st.none()), max_size=3),
    st.tuples(st.integers()),
    st.dictionaries(st.one_of(st.text(max_size=2), st.integers()), st.one_of(st.floats(), st.text()), max_size=2),
    st.builds(Inner, st.one_of(st.integers(), st.text())),
    st.lists(st.builds(Inner, st.one_of(st.integers(), st.none())), max_size=2),
    st.just(object()),
)


@given(st.sampled_from(Everything.__struct_fields__), STRANGE)
def test_it_says_what_arrow_says(name: str, value: Any) -> None:
    event = Everything(**{name: value})
    try:
        to_batch(Everything, [event], "here")
    except JobFailed as refused:
        assert not fitting(Everything)(event)
        with pytest.raises(JobFailed) as caught:
            check_fits(Everything, [Everything(), event], "here")
        assert (caught.value.code, caught.value.cause) == (refused.code, refused.cause)
    else:
        check_fits(Everything, [event], "here")


def test_another_type_is_refused() -> None:
    assert not fitting(Inner)(None)
    with pytest.raises(JobFailed, match="SW-TYPE-EVENT"):
        check_fits(Inner, [Everything()], "here")
