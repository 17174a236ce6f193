"""Expressions as Spark conditions, with the same results as in Python and Arrow (`components.predicates`).

Where Spark's semantics differ, the condition is guarded:

    NaN     equals itself and is above all numbers in Spark; here every comparison with it is false
    -0.0    it is equal to 0.0 in Spark too, but not to a Parquet file's dictionary and statistics, by which Spark passes over
            parts of files; adding 0.0 makes one zero of both, and keeps such conditions away from files
    times   are compared by their microseconds: a literal goes through no time zone

Text is compared by its bytes on both sides. Decimals are not compared here (`job.push_down` says why).
"""

from __future__ import annotations

from datetime import date
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from streamwork.components.predicates import CompareOp, Kind, LogicOp, Visitor
from streamwork.components.times import microseconds

_COMPARE = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


class SparkVisitor(Visitor[Any]):
    """Makes a Column. The columns of the frame must have the names and the types of the event's fields."""

    def __init__(self) -> None:
        from pyspark.sql import functions

        self._spark = functions

    def field(self, name: str, kind: Kind, nullable: bool) -> Any:
        column = self._spark.col(quoted(name))
        return column + self._spark.lit(0.0) if kind is Kind.FLOAT else column

    def literal(self, value: Any, kind: Kind) -> Any:
        lit = self._spark.lit
        match kind:
            case Kind.INT:
                return lit(value).cast("long")
            case Kind.FLOAT:
                return lit(value + 0.0)
            case Kind.TIME:
                return self._spark.timestamp_micros(lit(microseconds(value)).cast("long"))
            case Kind.DATE:
                return self._spark.date_from_unix_date(lit((value - date(1970, 1, 1)).days))
            case Kind.BYTES:
                return lit(bytearray(value))
            case _:
                return lit(value)

    def to_float(self, operand: Any) -> Any:
        return operand.cast("double")

    def compare(self, op: CompareOp, left: Any, right: Any, kind: Kind) -> Any:
        assert kind is not Kind.DECIMAL, "it is not exact"
        plain = _COMPARE[op](left, right)
        if kind is not Kind.FLOAT:
            return plain
        known = left.isNotNull() & right.isNotNull()
        strange = known & (self._spark.isnan(left) | self._spark.isnan(right))
        return self._spark.when(strange, self._spark.lit(op == "!=")).otherwise(plain)

    def logic(self, op: LogicOp, left: Any, right: Any) -> Any:
        return left & right if op == "&" else left | right

    def negate(self, operand: Any) -> Any:
        return ~operand

    def is_null(self, operand: Any) -> Any:
        return operand.isNull()

    def is_in(self, operand: Any, values: tuple[Any, ...], kind: Kind) -> Any:
        if kind is not Kind.FLOAT:
            return operand.isin(*(self.literal(value, kind) for value in values))
        same = [self.compare("==", operand, self.literal(value, kind), kind) for value in values]
        while len(same) > 1:  # as a tree: a long line of ORs is too deep for Spark
            same = [a | b for a, b in zip(same[::2], same[1::2], strict=False)] + same[len(same) // 2 * 2 :]
        return same[0]


def quoted(name: str) -> str:
    """The quoted name of a column."""
    return "`" + name.replace("`", "``") + "`"
