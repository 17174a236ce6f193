"""Field types: how a column of one type is built, checked and read back.

Arrow converts silently (1.5 becomes 1 in an int column), so each `FieldType` checks values before it passes them on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components.times import BEGINNING, microseconds
from streamwork.components.values import Digits

Values = Sequence[Any]
MISFITS = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError)
MOST_ITEMS = 2**31 - 1
LESS = "less than 2 GiB of text and 2,147,483,648 items of lists"
INT_RANGE = (-(2**63), 2**63 - 1)
EXACT = 2**53  # integers up to here are floats, too
FIRST_TIME, LAST_TIME = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_TIME_RANGE = (microseconds(FIRST_TIME), microseconds(LAST_TIME))
_DATE_RANGE = ((date.min - BEGINNING.date()).days, (date.max - BEGINNING.date()).days)


def show(value: object, limit: int = 300) -> str:
    """A value as text for an error, shortened."""
    try:
        text = repr(value)
    except Exception:  # an int of more digits than Python writes, or a __repr__ that raises
        text = f"<{type(value).__name__} that cannot be shown>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def is_time(value: datetime) -> bool:
    """True for a datetime that Arrow, Python and files can store: it has a time zone, and is in year 1 to 9999 in UTC.

    Near both ends another zone may reach beyond them: 9999-12-31T23:59:59-05:00 is in year 10000.
    """
    if value.tzinfo is UTC:
        return True
    try:
        return value.utcoffset() is not None and (1 < value.year < 9999 or FIRST_TIME <= value <= LAST_TIME)
    except Exception:  # from a user-written tzinfo
        return False


def in_utc(value: datetime) -> datetime:
    """The same time in UTC. Two datetimes of one zone compare by local time, in which some hours repeat."""
    return value if value.tzinfo is UTC else value.astimezone(UTC)


class Misfit(ValueError):
    """Raised for a value that does not fit its field; callers turn it into an error that names field and event."""

    def __init__(self, value: object, expected: str, path: str = "") -> None:
        super().__init__(value, expected, path)
        self.value = value
        self.expected = expected
        self.path = path

    def __str__(self) -> str:
        return f"expected {self.expected}, got {type(self.value).__name__} {show(self.value, limit=80)}"


class Oversized(Misfit):
    """Raised for more than one Arrow array can hold; several arrays may hold it (`components.batches`)."""


class FieldType:
    """One type of field. `build` makes a checked Arrow array, `restore` makes Python values of what Arrow gives back."""

    def __init__(self, arrow: pa.DataType, name: str, python: tuple[type, ...], nullable: bool) -> None:
        self.arrow = arrow
        self.name = name
        self.nullable = nullable
        self._python = python
        self._exact = frozenset((*python, type(None)) if nullable else python)

    def build(self, values: Values) -> pa.Array:
        self.check(values)
        try:
            return array_of(values, self.arrow)
        except MISFITS:
            for value in values:
                self._build_one(value)
            raise

    def restore(self, values: Values) -> Values:
        return values

    def check(self, values: Values) -> None:
        """Raise Misfit for the first value whose type is wrong."""
        strange = set(map(type, values)) - self._exact
        # Subclasses are welcome (an IntEnum is an int), but a bool is no number.
        if any(kind is bool or not issubclass(kind, self._python) for kind in strange):
            raise Misfit(next(v for v in values if type(v) in strange), self.name)

    def check_entered(self, values: Values) -> None:
        """Check what a typed decoder does not check: ranges, time zones."""

    def check_column(self, column: pa.Array) -> None:
        """Check an Arrow column of this type for values that Arrow can hold and Python cannot: dates after year 9999, bytes that
        are not text, Decimals with too many digits.
        """
        if pa.types.is_string(self.arrow) or pa.types.is_decimal(self.arrow):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise Misfit(str(error), self.name) from None

    def _build_one(self, value: object) -> None:
        try:
            array_of([value], self.arrow)
        except MISFITS:
            raise Misfit(value, self.name) from None


class IntType(FieldType):
    def __init__(self, nullable: bool) -> None:
        super().__init__(pa.int64(), "int (64 bit)", (int,), nullable)

    def check_entered(self, values: Values) -> None:
        present = [v for v in values if v is not None] if self.nullable else values
        if present and (min(present) < INT_RANGE[0] or max(present) > INT_RANGE[1]):
            raise Misfit(next(v for v in present if not INT_RANGE[0] <= v <= INT_RANGE[1]), self.name)


class TimeType(FieldType):
    def __init__(self, nullable: bool) -> None:
        name = "datetime with a time zone, in UTC from year 1 to 9999"
        super().__init__(pa.timestamp("us", tz="UTC"), name, (datetime,), nullable)

    def check(self, values: Values) -> None:
        super().check(values)
        self.check_entered(values)

    def check_entered(self, values: Values) -> None:
        for value in values:
            if value is not None and not is_time(value):
                raise Misfit(value, self.name)

    def check_column(self, column: pa.Array) -> None:
        _check_range(column.cast(pa.int64()), _TIME_RANGE, f"{self.name} (here: microseconds since 1970)")

    def restore(self, values: Values) -> Values:
        return [v if v is None else v.astimezone(UTC) for v in values]


class DateType(FieldType):
    def __init__(self, nullable: bool) -> None:
        super().__init__(pa.date32(), "date", (date,), nullable)

    def check(self, values: Values) -> None:
        super().check(values)
        for value in values:
            if isinstance(value, datetime):  # a subclass of date, whose time would be cut off
                raise Misfit(value, self.name)

    def check_column(self, column: pa.Array) -> None:
        _check_range(column.cast(pa.int32()), _DATE_RANGE, f"{self.name} from year 1 to 9999 (here: days since 1970)")


class DecimalType(FieldType):
    def __init__(self, digits: Digits, nullable: bool) -> None:
        name = f"Decimal({digits.precision}, {digits.scale})"
        super().__init__(pa.decimal128(digits.precision, digits.scale), name, (Decimal,), nullable)
        self._unit = Decimal(1).scaleb(-digits.scale)
        self._exact_context = Context(prec=digits.precision, traps=[Inexact, InvalidOperation])

    def build(self, values: Values) -> pa.Array:
        """At the scale of the field: Arrow takes 4E-20 for 0, and refuses 0E+100."""
        self.check(values)
        return pa.array([None if value is None else self.at_scale(value) for value in values], self.arrow)

    def check_entered(self, values: Values) -> None:
        for value in values:
            if value is not None:
                self.at_scale(value)

    def holds(self, value: Decimal) -> bool:
        """True if the field can hold all its digits. It cannot hold NaN and infinities."""
        try:
            self.at_scale(value)
        except Misfit:
            return False
        return True

    def at_scale(self, value: Decimal) -> Decimal:
        """The same number with as many digits behind the point as the field has. Raises Misfit."""
        try:
            scaled = value.quantize(self._unit, context=self._exact_context)
        except (Inexact, InvalidOperation):
            raise Misfit(value, self.name) from None
        if not scaled.is_finite():
            raise Misfit(value, self.name)
        return scaled


class ListType(FieldType):
    def __init__(self, item: FieldType, nullable: bool) -> None:
        super().__init__(
            pa.list_(pa.field("item", item.arrow, item.nullable)), f"list[{item.name}]", (list, tuple), nullable
        )
        self.item = item

    def build(self, values: Values) -> pa.Array:
        self.check(values)
        offsets = _offsets(values)
        items = self.item.build(list(chain.from_iterable(v for v in values if v is not None)))
        return pa.ListArray.from_arrays(offsets, items, type=self.arrow)

    def restore(self, values: Values) -> Values:
        return [v if v is None else list(self.item.restore(v)) for v in values]

    def check_entered(self, values: Values) -> None:
        self.item.check_entered([item for v in values if v is not None for item in v])

    def check_column(self, column: pa.Array) -> None:
        self.item.check_column(column.flatten())


class MapType(FieldType):
    def __init__(self, item: FieldType, nullable: bool) -> None:
        super().__init__(
            pa.map_(pa.string(), pa.field("value", item.arrow, item.nullable)),
            f"dict[str, {item.name}]",
            (dict,),
            nullable,
        )
        self.key, self.item = FieldType(pa.string(), "str", (str,), False), item

    def build(self, values: Values) -> pa.Array:
        self.check(values)
        present = [v for v in values if v is not None]
        keys = self.key.build(list(chain.from_iterable(v.keys() for v in present)))
        items = self.item.build(list(chain.from_iterable(v.values() for v in present)))
        return pa.MapArray.from_arrays(_offsets(values), keys, items, self.arrow)

    def restore(self, values: Values) -> Values:
        return [
            v if v is None else dict(zip([k for k, _ in v], self.item.restore([x for _, x in v]), strict=True))
            for v in values
        ]

    def check_entered(self, values: Values) -> None:
        self.item.check_entered([item for v in values if v is not None for item in v.values()])

    def check_column(self, column: pa.Array) -> None:
        if len(column):  # `items` are also those outside of a slice
            start, end = column.offsets[0].as_py(), column.offsets[len(column)].as_py()
            self.item.check_column(column.items.slice(start, end - start))


def _check_range(numbers: pa.Array, allowed: tuple[int, int], expected: str) -> None:
    found = pc.min_max(numbers)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is not None and (low < allowed[0] or high > allowed[1]):
        raise Misfit(low if low < allowed[0] else high, expected)


def relaxed(kind: pa.DataType) -> pa.DataType:
    """The same type with all inside it nullable."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, relaxed(child.type)) for child in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, relaxed(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(relaxed(kind.value_type))
    return kind


def array_of(values: Values, arrow: pa.DataType) -> pa.Array:
    """One array. Raises Oversized if Arrow would make several, or refuses the size."""
    try:
        array = pa.array(values, arrow)
    except pa.ArrowCapacityError:
        raise Oversized(values, LESS) from None
    if isinstance(array, pa.ChunkedArray):
        raise Oversized(values, LESS)
    return array


def _offsets(values: Values) -> pa.Array:
    """Offsets of a list array; a null offset marks a null list."""
    ends = list(accumulate((0 if v is None else len(v) for v in values), initial=0))
    if ends[-1] > MOST_ITEMS:
        raise Oversized(values, LESS)
    return pa.array([*(None if v is None else end for v, end in zip(values, ends, strict=False)), ends[-1]], pa.int32())
