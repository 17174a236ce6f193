"""Events as text, and back: whatever an event may hold."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

from hypothesis import example, given
from hypothesis import strategies as st

from streamwork import Digits, Event
from streamwork.components.columns import to_batch, to_structs
from streamwork.delivery.text import from_text, to_text


class Inner(Event):
    x: float
    note: str | None


class Wide(Event):
    flag: bool
    number: int
    real: float
    text: str
    raw: bytes
    when: datetime
    day: date
    price: Annotated[Decimal, Digits(10, 2)]
    tags: list[str]
    sizes: dict[str, float]
    inner: Inner
    maybe: float | None


INNER = st.builds(Inner, st.floats(), st.none() | st.text())
WIDE = st.builds(
    Wide,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(),
    st.binary(),
    st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    st.dates(date(1700, 1, 1), date(2200, 1, 1)),
    st.decimals("-99999999.99", "99999999.99", places=2),
    st.lists(st.text(), max_size=3),
    st.dictionaries(st.text(), st.floats(), max_size=3),
    INNER,
    st.none() | st.floats(),
)


def same(a: Any, b: Any) -> bool:
    """Equal, and NaN is equal to itself."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, Event):
        return type(a) is type(b) and all(same(getattr(a, f), getattr(b, f)) for f in a.__struct_fields__)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)


@given(WIDE)
@example(
    Wide(
        True,
        1,
        math.nan,
        "null",
        b"",
        datetime(2026, 1, 1, tzinfo=UTC),
        date(2026, 1, 1),
        Decimal("1.50"),
        [],
        {"a": math.inf},
        Inner(-math.inf, None),
        None,
    )
)
def test_nothing_is_lost(event: Wide) -> None:
    assert same(from_text(Wide, to_text(event)), event)
    assert same(to_structs(Wide, to_batch(Wide, [from_text(Wide, to_text(event))], "test"))[0], event)


def test_what_is_no_event_stays_as_it_is() -> None:
    assert to_text("{broken") == "{broken"
