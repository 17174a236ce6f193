"""Compiles an expression: to a Python function over events, or to Arrow kernels over a batch.

A `Visitor` compiles an `Expression`; hosts have further ones, for example for Spark.
All of them follow one logic, that of SQL: a comparison with null is unknown, `&` `|` `~` are three-valued, and a row
is kept only if the whole is true. Floats compare as in IEEE 754 and Python: NaN equals nothing, is smaller and larger
than nothing. (Spark and DuckDB order NaN above all else: a visitor for them adds that guard where `kind` is FLOAT.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from enum import Enum
from keyword import iskeyword
from typing import Any, Generic, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components.field_types import FieldType, in_utc

T = TypeVar("T")
CompareOp = Literal["==", "!=", "<", "<=", ">", ">="]
LogicOp = Literal["&", "|"]


class Kind(Enum):
    """The kind of a field or a literal, for comparisons. The value is the word in errors."""

    TEXT = "str"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    BYTES = "bytes"
    TIME = "datetime"
    DATE = "date"
    DECIMAL = "Decimal"
    NESTED = "list, dict or event"

    @classmethod
    def of(cls, field: FieldType) -> Kind:
        return next((kind for kind, fits in _ARROW_KINDS.items() if fits(field.arrow)), cls.NESTED)


_ARROW_KINDS: dict[Kind, Callable[[pa.DataType], bool]] = {
    Kind.TEXT: pa.types.is_string,
    Kind.INT: pa.types.is_integer,
    Kind.FLOAT: pa.types.is_floating,
    Kind.BOOL: pa.types.is_boolean,
    Kind.BYTES: pa.types.is_binary,
    Kind.TIME: pa.types.is_timestamp,
    Kind.DATE: pa.types.is_date,
    Kind.DECIMAL: pa.types.is_decimal,
}


class Visitor(ABC, Generic[T]):
    """Makes a T of an expression, from the leaves up, one call per node; `Expression.fold` has checked the types.

    Both sides of a comparison are of `kind`: literals have been converted, and an int field that meets a float has
    gone through `to_float`. A literal is never null or NaN; times are in UTC.
    """

    @abstractmethod
    def field(self, name: str, kind: Kind, nullable: bool) -> T: ...
    @abstractmethod
    def literal(self, value: Any, kind: Kind) -> T: ...
    @abstractmethod
    def to_float(self, operand: T) -> T: ...
    @abstractmethod
    def compare(self, op: CompareOp, left: T, right: T, kind: Kind) -> T: ...
    @abstractmethod
    def logic(self, op: LogicOp, left: T, right: T) -> T: ...
    @abstractmethod
    def negate(self, operand: T) -> T: ...
    @abstractmethod
    def is_null(self, operand: T) -> T: ...
    @abstractmethod
    def is_in(self, operand: T, values: tuple[Any, ...], kind: Kind) -> T: ...


class PythonVisitor(Visitor[str]):
    """Writes a Python function: one assignment per node, so that an event costs one call and no nesting is too deep.

    The text is made of our own names and of field names that are plain identifiers; all values, and any other name,
    are constants beside it. A T is the name of a variable, which holds None for unknown. Checks for None are written
    only where a field may be null.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._constants: dict[str, Any] = {"utc": _utc}
        self._fields: dict[str, str] = {}
        self._nullable: set[str] = set()

    def finish(self, root: str) -> Callable[[Any], bool]:
        answer = f"{root} is True" if root in self._nullable else root
        body = "\n".join(f"    {line}" for line in (*self._lines, f"return {answer}"))
        exec(compile(f"def keep(e):\n{body}\n", "<streamwork expression>", "exec"), self._constants)
        keep: Callable[[Any], bool] = self._constants["keep"]
        return keep

    def field(self, name: str, kind: Kind, nullable: bool) -> str:
        if name not in self._fields:
            # Python normalises names in source, and rejects keywords: such fields are read with getattr.
            plain = name.isascii() and name.isidentifier() and not iskeyword(name)
            value = f"e.{name}" if plain else f"getattr(e, {self._constant(name)})"
            self._fields[name] = self._assign(f"utc({value})" if kind is Kind.TIME else value)
            if nullable:
                self._nullable.add(self._fields[name])
        return self._fields[name]

    def literal(self, value: Any, kind: Kind) -> str:
        return self._constant(value)

    def to_float(self, operand: str) -> str:
        return self._unless_null(f"float({operand})", operand)

    def compare(self, op: CompareOp, left: str, right: str, kind: Kind) -> str:
        return self._unless_null(f"{left} {op} {right}", left, right)

    def logic(self, op: LogicOp, left: str, right: str) -> str:
        if not self._nullable & {left, right}:
            return self._assign(f"{left} {'and' if op == '&' else 'or'} {right}")
        decides, otherwise = ("False", "True") if op == "&" else ("True", "False")
        name = self._assign(
            f"{decides} if {left} is {decides} or {right} is {decides} "
            f"else None if {left} is None or {right} is None else {otherwise}"
        )
        self._nullable.add(name)
        return name

    def negate(self, operand: str) -> str:
        return self._unless_null(f"not {operand}", operand)

    def is_null(self, operand: str) -> str:
        return self._assign(f"{operand} is None")

    def is_in(self, operand: str, values: tuple[Any, ...], kind: Kind) -> str:
        return self._unless_null(f"{operand} in {self._constant(frozenset(values))}", operand)

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = value
        return name

    def _assign(self, value: str) -> str:
        name = f"v{len(self._lines)}"
        self._lines.append(f"{name} = {value}")
        return name

    def _unless_null(self, value: str, *operands: str) -> str:
        maybe = dict.fromkeys(o for o in operands if o in self._nullable)
        if not maybe:
            return self._assign(value)
        name = self._assign(f"None if {' or '.join(f'{o} is None' for o in maybe)} else {value}")
        self._nullable.add(name)
        return name


def _utc(value: datetime | None) -> datetime | None:
    return None if value is None else in_utc(value)


Column = Callable[[pa.RecordBatch], Any]
_COMPARE = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_LITERALS = {
    Kind.TEXT: pa.string(),
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.BOOL: pa.bool_(),
    Kind.BYTES: pa.binary(),
    Kind.TIME: pa.timestamp("us", tz="UTC"),
    Kind.DATE: pa.date32(),
}


class ArrowVisitor(Visitor[Column]):
    """Calls Arrow's kernels on whole columns. The result is a boolean array, null where unknown: a mask to filter by."""

    def field(self, name: str, kind: Kind, nullable: bool) -> Column:
        return lambda batch: batch.column(name)

    def literal(self, value: Any, kind: Kind) -> Column:
        scalar = pa.scalar(value, _LITERALS.get(kind))
        return lambda batch: scalar

    def to_float(self, operand: Column) -> Column:
        # Beyond 2**53 an int becomes the nearest float, as in SQL and as Python's float() does.
        return lambda batch: pc.cast(operand(batch), pa.float64(), safe=False)

    def compare(self, op: CompareOp, left: Column, right: Column, kind: Kind) -> Column:
        kernel = _COMPARE[op]
        if kind is Kind.DECIMAL:
            return lambda batch: kernel(_wide(left(batch)), _wide(right(batch)))
        return lambda batch: kernel(left(batch), right(batch))

    def logic(self, op: LogicOp, left: Column, right: Column) -> Column:
        kernel = pc.and_kleene if op == "&" else pc.or_kleene
        return lambda batch: kernel(left(batch), right(batch))

    def negate(self, operand: Column) -> Column:
        return lambda batch: pc.invert(operand(batch))

    def is_null(self, operand: Column) -> Column:
        return lambda batch: pc.is_null(operand(batch))

    def is_in(self, operand: Column, values: tuple[Any, ...], kind: Kind) -> Column:
        if kind not in (Kind.FLOAT, Kind.DECIMAL):
            allowed = pa.array(values, _LITERALS[kind])
            return lambda batch: _in_set(operand(batch), allowed)
        # A hash look-up would distinguish 0.0 from -0.0, and needs Decimals of exactly the same scale.
        either = self.compare("==", operand, self.literal(values[0], kind), kind)
        for value in values[1:]:
            either = self.logic("|", either, self.compare("==", operand, self.literal(value, kind), kind))
        return either


def _in_set(column: Any, allowed: pa.Array) -> Any:
    # In Arrow, null is not in the set; in SQL that is unknown.
    return pc.if_else(pc.is_valid(column), pc.is_in(column, value_set=allowed), pa.scalar(None, pa.bool_()))


def _wide(decimals: Any) -> Any:
    """38 digits before the point and 38 behind it do not fit into 128 bits once they stand in one type."""
    return pc.cast(decimals, pa.decimal256(decimals.type.precision, decimals.type.scale))
