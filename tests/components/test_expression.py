"""Expressions: one meaning, however they are compiled. DuckDB is the judge from outside."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings

from expressions import Reading, events, expressions
from streamwork import Event, WrongUse
from streamwork.components.columns import to_batch
from streamwork.components.expression import Expression, field
from streamwork.components.predicates import CompareOp, Kind, LogicOp, Visitor


class Sql(Visitor[str]):
    """The same expression for DuckDB, written as a host would write a visitor."""

    def field(self, name: str, kind: Kind, nullable: bool) -> str:
        # Comparing times is all we ask; DuckDB's zones are an extension that is not always there.
        return f'epoch_us("{name}")' if kind is Kind.TIME else f'"{name}"'

    def literal(self, value: Any, kind: Kind) -> str:
        match kind:
            case Kind.TEXT:
                return "'" + value.replace("'", "''") + "'"
            case Kind.BYTES:
                return "'" + "".join(f"\\x{b:02X}" for b in value) + "'::BLOB"
            case Kind.INT:
                return f"({value}::HUGEINT)::BIGINT"
            case Kind.FLOAT:
                return f"'{value!r}'::DOUBLE"
            case Kind.DECIMAL:
                # What DuckDB's own promotion would cut off is not asked: both sides become exact texts (see compare).
                return f"'{value:f}'"
            case Kind.TIME:
                return str((value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
            case Kind.DATE:
                return f"'{value.isoformat()}'::DATE"
            case _:
                return str(value).lower()

    def to_float(self, operand: str) -> str:
        return f"{operand}::DOUBLE"

    def compare(self, op: CompareOp, left: str, right: str, kind: Kind) -> str:
        sql = f"({left} {'=' if op == '==' else op} {right})"
        if kind is Kind.FLOAT:  # DuckDB, like Spark, has NaN equal to itself and above all numbers
            either = f"(isnan({left}) OR isnan({right}))"
            known = f"({left} IS NOT NULL AND {right} IS NOT NULL)"
            return f"CASE WHEN {known} AND {either} THEN {'true' if op == '!=' else 'false'} ELSE {sql} END"
        if kind is Kind.DECIMAL:
            return f"({left}::DECIMAL(38, 10) {'=' if op == '==' else op} {right}::DECIMAL(38, 10))"
        return sql

    def logic(self, op: LogicOp, left: str, right: str) -> str:
        return f"({left} {'AND' if op == '&' else 'OR'} {right})"

    def negate(self, operand: str) -> str:
        return f"(NOT {operand})"

    def is_null(self, operand: str) -> str:
        return f"({operand} IS NULL)"

    def is_in(self, operand: str, values: tuple[Any, ...], kind: Kind) -> str:
        same = [self.compare("==", operand, self.literal(value, kind), kind) for value in values]
        return f"({' OR '.join(same)})"


@settings(max_examples=400, deadline=None)
@given(expressions, events)
def test_python_and_arrow_keep_the_same_events(expression: Expression, readings: list[Reading]) -> None:
    mask = expression.to_arrow(Reading)(to_batch(Reading, readings, "test"))
    keep = expression.to_python(Reading)
    assert [keep(reading) for reading in readings] == mask.fill_null(False).to_pylist()


@settings(max_examples=150, deadline=None)
@given(expressions, events)
def test_duckdb_finds_the_same_truth_and_the_same_unknown(expression: Expression, readings: list[Reading]) -> None:
    rows = pa.Table.from_batches([to_batch(Reading, readings, "test")])
    with duckdb.connect(config={"threads": 1}) as db:
        db.register("readings", rows)
        told = [row[0] for row in db.sql(f"SELECT {expression.fold(Reading, Sql())} FROM readings").fetchall()]
    assert expression.to_arrow(Reading)(rows.to_batches()[0]).to_pylist() == told


@given(expressions)
def test_expressions_survive_pickling_and_their_repr_is_their_source(expression: Expression) -> None:
    import datetime as datetime_module

    names = {"field": field, "datetime": datetime_module, "Decimal": Decimal, "inf": math.inf}
    assert repr(pickle.loads(pickle.dumps(expression))) == repr(expression)
    assert repr(eval(repr(expression), names)) == repr(expression)


def test_null_is_unknown_and_only_true_is_kept() -> None:
    class Maybe(Event):
        x: int | None

    batch = [Maybe(None), Maybe(1), Maybe(2)]

    def kept(expression: Expression) -> list[int | None]:
        return [e.x for e in filter(expression.to_python(Maybe), batch)]

    x = field("x")
    assert kept(x != 1) == [2]
    assert kept(~(x == 1)) == [2]
    assert kept(~x.is_in([1])) == [2]
    assert kept((x == 1) | (x != 1)) == [1, 2]
    assert kept((x == 1) | x.is_null()) == [None, 1]
    assert kept((x == 1).is_null()) == [None]


def test_nan_is_like_nothing_not_even_itself() -> None:
    class Real(Event):
        x: float

    keep = (field("x") == field("x")).to_python(Real)
    assert [keep(Real(math.nan)), keep(Real(1.0))] == [False, True]
    with pytest.raises(WrongUse, match="SW-EXPR-MISUSE"):
        field("x").is_in([math.nan])


class Numbers(Event):
    whole: int
    real: float


@pytest.mark.parametrize(
    ("condition", "event"),
    [
        # Every engine compares an int with a float as floats, so beyond 2**53 neighbours are equal.
        (field("whole") == field("real"), Numbers(2**53 + 1, float(2**53))),
        (field("whole") <= float(2**53), Numbers(2**53 + 1, 0.0)),
        (field("real").is_in([-0.0]), Numbers(0, 0.0)),
        (field("real").is_in([0]), Numbers(0, -0.0)),
        (field("real") == field("whole"), Numbers(0, -0.0)),
        (field("real") > 2**53, Numbers(0, math.inf)),
    ],
)
def test_numbers_on_which_engines_might_disagree(condition: Expression, event: Numbers) -> None:
    assert condition.to_python(Numbers)(event)
    assert condition.to_arrow(Numbers)(to_batch(Numbers, [event], "test")).to_pylist() == [True]


def test_how_it_reads() -> None:
    amount, kind = field("amount"), field("kind")
    whole = (amount > 5) & ~kind.is_in(["a", "b"]) & (kind.is_null() | (field("x") == field("y")))
    assert repr(whole) == (
        "(field('amount') > 5) & (~field('kind').is_in(['a', 'b'])) & "
        "(field('kind').is_null() | (field('x') == field('y')))"
    )
    assert whole.columns() == ("amount", "kind", "x", "y")
    assert repr(amount > 5) == "field('amount') > 5"


def test_field_names_that_python_would_not_read_as_written() -> None:
    odd = msgspec.defstruct("Odd", [("class", int), ("e", int), ("v0", int), ("ﬁeld", int)], bases=(Event,))
    condition = (field("class") == 1) & (field("e") == 2) & (field("v0") == 3) & (field("ﬁeld") == 4)
    keep = condition.to_python(odd)
    assert keep(odd(1, 2, 3, 4)) and not keep(odd(1, 2, 3, 5))


def test_a_long_chain() -> None:
    chain = field("whole") == 0
    for number in range(1, 250):
        chain = chain | (field("maybe_whole") == number)
    assert chain.to_python(Reading) is not None


def test_subclasses_count_by_their_value() -> None:
    class Size(IntEnum):
        BIG = 2

    class Colour(StrEnum):
        RED = "a"

    assert repr((field("whole") == Size.BIG) | (field("text") == Colour.RED)) == (
        "(field('whole') == 2) | (field('text') == 'a')"
    )


def test_an_unknown_field_is_refused_with_the_known_ones() -> None:
    with pytest.raises(WrongUse, match="Reading has no field 'wohle'") as caught:
        (~(field("wohle") == 1)).check(Reading)
    assert caught.value.code == "SW-EXPR-FIELD"
    assert "text, maybe_text, whole" in caught.value.action


@pytest.mark.parametrize(
    "expression",
    [
        field("text") == 1,
        field("whole") == "1",
        field("whole") == True,  # noqa: E712 (it is what we refuse)
        field("flag") == 1,
        field("flag") < field("maybe_flag"),
        field("price") == 1.5,
        field("price") == field("real"),
        field("price") == field("whole"),
        field("when") == date(2026, 1, 1),
        field("day") == datetime(2026, 1, 1, tzinfo=UTC),
        field("real") == 2**53 + 1,
        field("whole").is_in([1, "a"]),
        field("whole").is_in([1.5]),
        field("tags") == field("maybe_tags"),
        field("tags").is_in(["x"]),
        field("text"),
        ~field("text"),
        (field("whole") == 1) & field("text"),
        (field("text") == 1).is_null(),
    ],
)
def test_types_that_do_not_compare_are_refused_before_anything_runs(expression: Expression) -> None:
    with pytest.raises(WrongUse, match="SW-EXPR-TYPE"):
        expression.check(Reading)
    for compiled in (expression.to_python, expression.to_arrow):
        with pytest.raises(WrongUse, match="SW-EXPR-TYPE"):
            compiled(Reading)


@pytest.mark.parametrize(
    "value", [2**63, datetime(2026, 1, 1), Decimal("NaN"), Decimal("1E+40"), Decimal("1E-39"), [1], object()]
)
def test_values_that_no_field_holds_are_refused_at_once(value: object) -> None:
    with pytest.raises(WrongUse, match="SW-EXPR-TYPE"):
        field("x") == value  # noqa: B015 (building it is the point)


MISUSES: list[Callable[[Expression], Any]] = [
    lambda x: 1 if x == 1 else 2,
    lambda x: x == 1 and x == 2,
    lambda x: x == 1 or x == 2,
    lambda x: not x,
    lambda x: 1 < x < 3,
    lambda x: x in [1, 2],
    lambda x: x == 1 & x == 2,  # type: ignore[operator,unused-ignore]
    lambda x: (x == 1) & 1,
    lambda x: "view" | x,
    lambda x: x == None,  # noqa: E711 (it is what we refuse)
    lambda x: x.is_in([1, None]),
    lambda x: x.is_in([]),
    lambda x: x.is_in("abc"),
    lambda x: x.is_in(x),
    lambda x: field(""),
    lambda x: field(1),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_is_told_at_once(misuse: Callable[[Expression], Any]) -> None:
    with pytest.raises(WrongUse) as caught:
        misuse(field("x"))
    assert caught.value.code == "SW-EXPR-MISUSE"
    assert caught.value.action


def test_nodes_are_frozen() -> None:
    with pytest.raises(AttributeError):
        field("x").name = "y"  # type: ignore[attr-defined]
