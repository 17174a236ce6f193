"""Expressions and events at random, with the values on which engines disagree."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from streamwork import Digits, Event
from streamwork.components.expression import Expression, field


class Reading(Event):
    """Each kind of field twice: once that may be null, once that may not."""

    text: str
    maybe_text: str | None
    whole: int
    maybe_whole: int | None
    real: float
    maybe_real: float | None
    flag: bool
    maybe_flag: bool | None
    raw: bytes
    maybe_raw: bytes | None
    when: datetime
    maybe_when: datetime | None
    day: date
    maybe_day: date | None
    price: Annotated[Decimal, Digits(12, 2)]
    maybe_price: Annotated[Decimal, Digits(38, 20)] | None
    tags: list[str]
    maybe_tags: list[str] | None


# Few values each, so that they meet; among them those on which engines disagree.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.sampled_from(["", "a", "A", "b", "ä", "\U0001f600", "\uffff", "it's"]),
    "whole": st.sampled_from([0, 1, -1, 2, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "real": st.sampled_from([0.0, -0.0, 1.0, 1.5, -1.0, float(2**53), math.inf, -math.inf, 5e-324]),
    "flag": st.booleans(),
    "raw": st.sampled_from([b"", b"a", b"b", b"\xff", b"\x00"]),
    "when": st.sampled_from(
        [
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
            datetime(2025, 10, 26, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
            datetime(2025, 10, 26, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        ]
    ),
    "day": st.sampled_from([date(1970, 1, 1), date(2026, 2, 28), date(2026, 3, 1)]),
    "price": st.sampled_from([Decimal(t) for t in ("0", "1", "1.5", "1.50", "-1.25", "9999999999.99", "2E+2")]),
}
FINE_PRICES = st.sampled_from([Decimal("1.505"), Decimal("0.0000000001"), Decimal("-3")])


def reading_events() -> st.SearchStrategy[Reading]:
    given_fields: dict[str, st.SearchStrategy[Any]] = {}
    for name, values in VALUES.items():
        stored = values | st.just(math.nan) if name == "real" else values
        given_fields[name] = stored
        given_fields[f"maybe_{name}"] = st.none() | (stored | FINE_PRICES if name == "price" else stored)
    tags = st.lists(st.just("x"), max_size=1)
    return st.builds(Reading, tags=tags, maybe_tags=st.none() | tags, **given_fields)


@st.composite
def _comparisons(draw: st.DrawFn) -> Expression:
    name = draw(st.sampled_from([*VALUES, "tags"]))
    left = field(draw(st.sampled_from([name, f"maybe_{name}"])))
    if name == "tags":
        return left.is_null()
    literals = VALUES[name] | FINE_PRICES if name == "price" else VALUES[name]
    if name in ("real", "price"):
        literals = literals | st.sampled_from([0, 1, -1])
    if (shape := draw(st.sampled_from(["literal", "field", "in", "null"]))) == "null":
        return left.is_null()
    if shape == "in":
        return left.is_in(draw(st.lists(literals, min_size=1, max_size=3)))
    partners = {"whole": ["whole", "real"], "real": ["whole", "real"]}.get(name, [name])
    partner = draw(st.sampled_from(partners))
    if shape == "field":
        right: Any = field(draw(st.sampled_from([partner, f"maybe_{partner}"])))
    else:
        right = draw(VALUES["real"] if (name, partner) == ("whole", "real") else literals)
    return _compare(left, right, draw(st.sampled_from(["==", "!="] if name == "flag" else list(OPERATORS))))


OPERATORS: dict[str, Callable[[Any, Any], Expression]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _compare(left: Any, right: Any, op: str) -> Expression:
    return OPERATORS[op](left, right)


def _combined(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return (
        st.builds(lambda a, b: a & b, parts, parts | st.booleans())
        | st.builds(lambda a, b: a | b, parts, parts)
        | st.builds(lambda a: ~a, parts)
        | st.builds(lambda a: a.is_null(), parts)
        | st.builds(_compare, parts, parts | st.booleans(), st.sampled_from(["==", "!="]))
    )


flags = st.sampled_from([field("flag"), field("maybe_flag")])
expressions = st.recursive(_comparisons() | flags, _combined, max_leaves=6)
events = st.lists(reading_events(), min_size=1, max_size=8)
