"""Whether another engine finds the very same truth for an expression as `predicates` does.

The rules are those of Spark, with the guards of `hosts.spark_filter`: NaN, negative zero and time zones can be guarded against.
Decimals cannot: Spark brings both sides to one type of at most 38 digits, and rounds where they do not fit in.
"""

from __future__ import annotations

from typing import Any

import msgspec

from streamwork.components.expression import Expression
from streamwork.components.predicates import CompareOp, Kind, LogicOp, Visitor


def is_exact(expression: Expression, event: type[msgspec.Struct]) -> bool:
    return expression.fold(event, _Exactness())


class _Exactness(Visitor[bool]):
    def field(self, name: str, kind: Kind, nullable: bool) -> bool:
        return True

    def literal(self, value: Any, kind: Kind) -> bool:
        return True

    def to_float(self, operand: bool) -> bool:
        return operand

    def compare(self, op: CompareOp, left: bool, right: bool, kind: Kind) -> bool:
        return left and right and kind is not Kind.DECIMAL

    def logic(self, op: LogicOp, left: bool, right: bool) -> bool:
        return left and right

    def negate(self, operand: bool) -> bool:
        return operand

    def is_null(self, operand: bool) -> bool:
        return operand

    def is_in(self, operand: bool, values: tuple[Any, ...], kind: Kind) -> bool:
        return operand and kind is not Kind.DECIMAL
