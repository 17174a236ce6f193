"""Values at the edge of every type, with an oracle of its own for which of them fit, and jobs that take them every way."""

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec

from streamwork import Digits, Event, KeyedOperator, Operator, Record, Source

BERLIN = ZoneInfo("Europe/Berlin")
WEST, EAST = timezone(timedelta(hours=-5)), timezone(timedelta(hours=14))
TOUCHED = datetime(2026, 1, 1, tzinfo=UTC)


class NoOffset(tzinfo):
    """A zone that knows no offset: its times are no points in time."""

    def utcoffset(self, at: Any) -> None:
        return None


@dataclass(frozen=True)
class Kind:
    """A type of field: the extremes of it, and values that are just not of it."""

    annotation: Any
    default: Any
    good: tuple[Any, ...]
    bad: tuple[Any, ...]
    keyable: bool = True


KINDS = {
    "str": Kind(
        str,
        "",
        ("", "\0", "\x1b[2J\r\n\t", "\uffff", "\U0010ffff", "e\u0301", "\u202eabc", "x" * 200_000),
        ("\ud800", "a\udfff", None, 7, b"bytes"),
    ),
    "int": Kind(
        int, 0, (0, -1, 2**63 - 1, -(2**63), 2**53 + 1), (2**63, -(2**63) - 1, 2**64, 10**5000, True, 1.0, None)
    ),
    "float": Kind(
        float,
        0.0,
        (0.0, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan, 2**53),
        (2**53 + 1, 10**400, True, "1.0", None),
        keyable=False,
    ),
    "bool": Kind(bool, False, (True, False), (1, 0, "true", None)),
    "bytes": Kind(bytes, b"", (b"", b"\0", b"\xff\xfe", bytes(range(256)) * 400), ("text", bytearray(b"x"), None)),
    "datetime": Kind(
        datetime,
        TOUCHED,
        (
            datetime.min.replace(tzinfo=UTC),
            datetime.max.replace(tzinfo=UTC),
            datetime(1, 1, 1, tzinfo=WEST),
            datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=EAST),
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
            datetime(
                2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1
            ),  # an hour later, and equal to the one before for Python
        ),
        (
            datetime(9999, 12, 31, 23, 59, 59, tzinfo=WEST),
            datetime(1, 1, 1, tzinfo=EAST),
            datetime(2026, 1, 1),
            datetime(2026, 1, 1, tzinfo=NoOffset()),
            date(2026, 1, 1),
            None,
        ),
    ),
    "date": Kind(date, date(2026, 1, 1), (date.min, date.max, date(1970, 1, 1)), (TOUCHED, "2026-01-01", None)),
    "Decimal": Kind(
        Annotated[Decimal, Digits(12, 2)],
        Decimal(0),
        (
            Decimal("9999999999.99"),
            Decimal("-9999999999.99"),
            Decimal("-0"),
            Decimal("1.50"),
            Decimal("1.5"),
            Decimal("1E+9"),
        ),
        (*map(Decimal, ("NaN", "sNaN", "Infinity", "-Infinity", "1E+10", "0.001", "1E+400", "4E-20")), 1.5, None),
    ),
}


def plain(value: Any) -> Any:
    """A good value as any reader of a file or a sink sees it: points in time in UTC, NaN as text."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return "nan" if isinstance(value, float) and math.isnan(value) else value


class Types:
    """Event, record and operators for one kind."""

    def __init__(self, name: str) -> None:
        kind = KINDS[name]
        event: Any = msgspec.defstruct(
            f"Given_{name}", [("n", int), ("value", kind.annotation)], bases=(Event,), frozen=True, gc=False
        )
        kept: Any = msgspec.defstruct(
            f"Kept_{name}", [("count", int, 0), ("last", kind.annotation, kind.default)], bases=(Record,), gc=False
        )
        self.event, self.record = event, kept

        class Spoiling(Operator[event, event]):  # type: ignore[valid-type]
            """Emits the value that its number stands for."""

            def __init__(self, values: list[Any]) -> None:
                self.values = values

            def apply(self, given: Any, collector: Any) -> None:
                collector.emit(event(given.n, self.values[given.n]))

        class Keeping(KeyedOperator[event, kept, event]):  # type: ignore[valid-type]
            """Counts its key, keeps the value, and emits the count in the place of `n` where it is keyed by the value."""

            def __init__(self, values: list[Any] | None = None) -> None:
                self.values = values

            def apply(self, given: Any, state: Any, collector: Any) -> None:
                state.count += 1
                state.last = self.values[given.n] if self.values is not None else given.value
                collector.emit(event(given.n, given.value))

        class Polled(Source[event]):  # type: ignore[valid-type]
            bounded = True

            def __init__(self, values: list[Any]) -> None:
                self.values = values
                self.at = 0

            def get_events(self, collector: Any) -> None:
                for n in range(self.at, min(self.at + 3, len(self.values))):
                    collector.emit(event(n, self.values[n]))
                self.at += 3

        self.spoiling, self.keeping, self.polled = Spoiling, Keeping, Polled

    def clean(self, values: list[Any], name: str) -> list[Any]:
        """Numbered events without a value worth speaking of."""
        return [self.event(n, KINDS[name].default) for n in range(len(values))]


TYPES = {name: Types(name) for name in KINDS}


class Mark(Record):
    fired: int = 0


class Moment(Event):
    n: int
    at: datetime


class Waking(KeyedOperator[Moment, Mark, Moment]):
    """Waits for a time of its own choice."""

    def __init__(self, times: list[Any], clock: str = "event") -> None:
        self.times = times
        self.clock: Any = clock

    def apply(self, event: Moment, state: Mark, collector: Any) -> None:
        if event.n < len(self.times):
            collector.set_timer(self.times[event.n], self.clock)
        collector.emit(event)

    def on_timer(self, key: int, at: datetime, state: Mark, collector: Any) -> None:
        state.fired += 1
        collector.emit(Moment(-key - 1, at))
