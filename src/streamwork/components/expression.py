"""`field("kind") == "view"`: conditions on the fields of an event, as data.

An expression is a tree of frozen nodes. It can be shown, pickled, checked against an event type before anything runs,
and compiled (see `predicates`) to a Python function, to Arrow, or by a host to its own language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn, TypeVar

import msgspec
import pyarrow as pa

from streamwork.components.field_types import FieldType
from streamwork.components.literals import (
    ORDERED,
    a,
    asked_for_truth,
    common_kind,
    converted,
    kind_of,
    misuse,
    no_condition,
    plain,
    wrong_type,
)
from streamwork.components.predicates import ArrowVisitor, CompareOp, Kind, LogicOp, PythonVisitor, Visitor
from streamwork.components.schema import fields_of
from streamwork.errors import WrongUse

T = TypeVar("T")
Fields = Mapping[str, FieldType]


class Expression:
    """A condition, or a part of one. Combine with ``== != < <= > >= & | ~``, `is_in` and `is_null`.

    Null is treated as in SQL: a comparison with null is neither true nor false, and `where` keeps an event only if the
    whole condition is true. So ``field("x") != 1`` and ``~(field("x") == 1)`` both leave out events whose x is null.
    """

    __slots__ = ()

    def check(self, event: type[msgspec.Struct]) -> None:
        """Refuse a condition that does not fit this event: an unknown field, types that cannot be compared."""
        kind = self._kind(fields_of(event), event.__name__)
        if kind is not Kind.BOOL:
            raise wrong_type(f"{self!r} is {a(kind)}, not a condition", "compare it with something")

    def columns(self) -> tuple[str, ...]:
        """The fields used, each once, in the order in which they appear."""
        return tuple(dict.fromkeys(self._columns()))

    def fold(self, event: type[msgspec.Struct], visitor: Visitor[T]) -> T:
        """Check, then compile with a visitor."""
        self.check(event)
        return self._fold(fields_of(event), visitor)

    def to_python(self, event: type[msgspec.Struct]) -> Callable[[Any], bool]:
        """A function that tests the condition for one event. It cannot be pickled; the expression can."""
        visitor = PythonVisitor()
        return visitor.finish(self.fold(event, visitor))

    def to_arrow(self, event: type[msgspec.Struct]) -> Callable[[pa.RecordBatch], pa.BooleanArray]:
        """A function from a batch with the event's columns to a mask, null where unknown; `batch.filter(mask)` keeps
        what is true.
        """
        return self.fold(event, ArrowVisitor())

    def is_in(self, values: Iterable[Any]) -> Expression:
        if isinstance(values, str | bytes | Expression) or not isinstance(values, Iterable):
            raise misuse(f"is_in({values!r}) is given no list", 'write is_in(["a", "b"])')
        return IsIn(self, tuple(Literal(value) for value in values))

    def is_null(self) -> Expression:
        return IsNull(self)

    # `==` of two expressions is an expression, so expressions have no equality; compare their `repr`.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return Compare("==", self, _operand(other))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return Compare("!=", self, _operand(other))

    def __lt__(self, other: object) -> Expression:
        return Compare("<", self, _operand(other))

    def __le__(self, other: object) -> Expression:
        return Compare("<=", self, _operand(other))

    def __gt__(self, other: object) -> Expression:
        return Compare(">", self, _operand(other))

    def __ge__(self, other: object) -> Expression:
        return Compare(">=", self, _operand(other))

    def __and__(self, other: object) -> Expression:
        return Logic("&", self, _condition(other))

    def __or__(self, other: object) -> Expression:
        return Logic("|", self, _condition(other))

    def __rand__(self, other: object) -> Expression:
        return Logic("&", _condition(other), self)

    def __ror__(self, other: object) -> Expression:
        return Logic("|", _condition(other), self)

    def __invert__(self) -> Expression:
        return Not(self)

    def __bool__(self) -> NoReturn:
        raise asked_for_truth(self)

    def _kind(self, fields: Fields, event: str) -> Kind:
        raise NotImplementedError

    def _columns(self) -> Iterable[str]:
        return chain.from_iterable(part._columns() for part in self._parts())

    def _parts(self) -> tuple[Expression, ...]:
        return ()

    def _fold(self, fields: Fields, visitor: Visitor[T]) -> T:
        raise NotImplementedError


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Field(Expression):
    """A field of the event."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise misuse(f"field({self.name!r}) names no field", 'write field("amount")')

    def __repr__(self) -> str:
        return f"field({self.name!r})"

    def _kind(self, fields: Fields, event: str) -> Kind:
        if self.name not in fields:
            raise WrongUse(
                "SW-EXPR-FIELD", f"{event} has no field {self.name!r}", f"use one of: {', '.join(fields) or 'none'}"
            )
        return Kind.of(fields[self.name])

    def _columns(self) -> Iterable[str]:
        return (self.name,)

    def _fold(self, fields: Fields, visitor: Visitor[T]) -> T:
        return visitor.field(self.name, Kind.of(fields[self.name]), fields[self.name].nullable)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Literal(Expression):
    """A value to compare with: never null, NaN, infinitely long or without a time zone."""

    value: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", plain(self.value))

    def __repr__(self) -> str:
        return repr(self.value)

    def _kind(self, fields: Fields, event: str) -> Kind:
        return kind_of(self.value)

    def _fold(self, fields: Fields, visitor: Visitor[T]) -> T:
        return visitor.literal(self.value, kind_of(self.value))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Binary(Expression):
    """Two parts and the operator between them."""

    op: str
    left: Expression
    right: Expression

    def _parts(self) -> tuple[Expression, ...]:
        return self.left, self.right


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Compare(Binary):
    op: CompareOp

    def __repr__(self) -> str:
        return f"{_inner(self.left)} {self.op} {_inner(self.right)}"

    def _kind(self, fields: Fields, event: str) -> Kind:
        if self._common(fields, event) not in ORDERED and self.op not in ("==", "!="):
            raise wrong_type(f"{self!r} orders what is true or false", "use == or !=")
        return Kind.BOOL

    def _common(self, fields: Fields, event: str = "") -> Kind:
        """The kind in which both sides are compared."""
        left, right = (side._kind(fields, event) for side in self._parts())
        common = common_kind(left, right, *(s.value if isinstance(s, Literal) else None for s in self._parts()))
        if common is None or common is Kind.NESTED:
            raise wrong_type(
                f"{self!r} compares {a(left)} with {a(right)}",
                "compare values of one type; an int may also meet a float, and a whole number a Decimal",
            )
        return common

    def _fold(self, fields: Fields, visitor: Visitor[T]) -> T:
        common = self._common(fields)
        left, right = (_fold_as(common, side, fields, visitor) for side in self._parts())
        return visitor.compare(self.op, left, right, common)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Logic(Binary):
    op: LogicOp

    def __repr__(self) -> str:
        # The same operator again on the left needs no brackets, so that a long chain is read as one.
        left = repr(self.left) if isinstance(self.left, Logic) and self.left.op == self.op else _inner(self.left)
        return f"{left} {self.op} {_inner(self.right)}"

    def _kind(self, fields: Fields, event: str) -> Kind:
        return _all_bool(self, fields, event)

    def _fold(self, fields: Fields, visitor: Visitor[T]) -> T:
        return visitor.logic(self.op, self.left._fold(fields, visitor), self.right._fold(fields, visitor))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Unary(Expression):
    operand: Expression

    def _parts(self) -> tuple[Expression, ...]:
        return (self.operand,)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Not(Unary):
    def __repr__(self) -> str:
        return f"~{_inner(self.operand)}"

    def _kind(self, fields: Fields, event: str) -> Kind:
        return _all_bool(self, fields, event)

    def _fold(self, fields: Fields, visitor: Visitor[T]) -> T:
        return visitor.negate(self.operand._fold(fields, visitor))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class IsNull(Unary):
    def __repr__(self) -> str:
        return f"{_inner(self.operand)}.is_null()"

    def _kind(self, fields: Fields, event: str) -> Kind:
        self.operand._kind(fields, event)
        return Kind.BOOL

    def _fold(self, fields: Fields, visitor: Visitor[T]) -> T:
        return visitor.is_null(self.operand._fold(fields, visitor))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class IsIn(Unary):
    values: tuple[Literal, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise misuse(f"{self.operand!r}.is_in([]) names no value", "name at least one")

    def __repr__(self) -> str:
        return f"{_inner(self.operand)}.is_in([{', '.join(map(repr, self.values))}])"

    def _kind(self, fields: Fields, event: str) -> Kind:
        kind = self.operand._kind(fields, event)
        for literal in self.values:
            if converted(literal.value, kind) is None:
                raise wrong_type(f"{self!r}: {literal!r} is never {a(kind)}", "name values of the field's type")
        return Kind.BOOL

    def _fold(self, fields: Fields, visitor: Visitor[T]) -> T:
        kind = self.operand._kind(fields, "")
        values = tuple(converted(literal.value, kind) for literal in self.values)
        return visitor.is_in(self.operand._fold(fields, visitor), values, kind)


def field(name: str) -> Expression:
    """A field of the event, to build a condition on: ``stream.where(field("kind") == "view")``."""
    return Field(name)


def _operand(value: object) -> Expression:
    return value if isinstance(value, Expression) else Literal(value)


def _condition(value: object) -> Expression:
    if isinstance(value, Expression | bool):
        return _operand(value)
    raise no_condition(value)


def _inner(part: Expression) -> str:
    """The text of a part inside another: in brackets if it has an operator."""
    return f"({part!r})" if isinstance(part, Compare | Logic | Not) else repr(part)


def _fold_as(kind: Kind, part: Expression, fields: Fields, visitor: Visitor[T]) -> T:
    if isinstance(part, Literal):
        return visitor.literal(converted(part.value, kind), kind)
    made = part._fold(fields, visitor)
    return made if part._kind(fields, "") is kind else visitor.to_float(made)


def _all_bool(whole: Expression, fields: Fields, event: str) -> Kind:
    for part in whole._parts():
        kind = part._kind(fields, event)
        if kind is not Kind.BOOL:
            raise wrong_type(f"{part!r} in {whole!r} is {a(kind)}, not a condition", "compare it with something")
    return Kind.BOOL
