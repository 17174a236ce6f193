"""The rows of a `DataFrameSource` in Spark: where they end, and the slice of an epoch as a DataFrame."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.types as at

from streamwork.components import Event
from streamwork.components.expression import Expression
from streamwork.components.schema import arrow_schema
from streamwork.connectors.dataframe import DataFrameSource
from streamwork.connectors.parquet_types import misfit_of
from streamwork.errors import JobFailed, StreamworkError
from streamwork.hosts.spark_filter import SparkVisitor, quoted

T = TypeVar("T")
OFFSET = "__offset"
LAST = 2**63 - 1
"""The order of the counts among the rows: after all of them."""


@dataclass
class _Look:
    """The result of a query for the rows from `start` on."""

    start: int
    low: int
    top: int  # the offset after the last row
    rows: int
    left: dict[int, int] = field(default_factory=dict)  # offset -> how many rows there are from it on, where known
    cuts: dict[tuple[int, int], int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Shape:
    """The columns that enter a stage. They refer to other columns by name, so one object serves the frame of every epoch."""

    row: list[Any]
    kept: Any = None  # a condition; None if there are no filters
    counts: Any = None
    counted: list[Any] = field(default_factory=list)


class SparkTable:
    """The rows of one source. Only offsets and counts are sent to the driver."""

    def __init__(
        self, session: Any, source: DataFrameSource[Any], name: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._session = session
        self._source = source
        self._event: type[Event] = source.event
        self._name = name
        self._now = now
        self._looked = 0.0
        self._seen: _Look | None = None
        self._checked: Any = None  # the schema that was last found to fit
        self._projection: list[Any] = []
        self._shapes: dict[tuple[int, int], _Shape] = {}
        self.looks = 0  # how many queries for the end there were

    def end(self, start: int, limit: int) -> int:
        """The offset after at most `limit` rows from `start`. Queries Spark only when all rows of the last query are
        planned, and at most every `look_every`.
        """
        seen = self._seen
        if seen is None or not seen.start <= start < seen.top:
            if seen is not None and start >= seen.start and self._now() < self._looked + self._source.look_every:
                return start
            seen = self._seen = self._guarded(lambda: self._look(start))
        if not seen.rows or start >= seen.top:
            return start
        if seen.top - start <= limit or seen.left.get(start, seen.rows) <= limit:
            return seen.top
        if seen.top - seen.low == seen.rows:  # no gaps
            return max(start, seen.low) + limit
        if (start, limit) not in seen.cuts:
            cut = seen.cuts[start, limit] = self._guarded(lambda: self._cut(start, limit))
            if start in seen.left:
                seen.left[cut] = seen.left[start] - limit
        return seen.cuts[start, limit]

    def has_more(self, end: int) -> bool:
        """True if the last query found rows from `end` on."""
        return self._seen is not None and end < self._seen.top

    def slices(self, place: int, number: int, start: int, end: int, filters: Sequence[Expression]) -> Iterator[Any]:
        """The rows of a slice as rows for a stage (`spark_input`), for the partition `place`; behind them, if there are filters,
        how many rows got as far as each of them.
        """
        frame = self._frame().where(f"{OFFSET} >= {start} AND {OFFSET} < {end}")
        if (place, number) not in self._shapes:
            self._shapes[place, number] = self._shape(place, number, filters)
        shape = self._shapes[place, number]
        yield (frame if shape.kept is None else frame.where(shape.kept)).select(*shape.row)
        if shape.kept is not None:
            yield frame.agg(shape.counts).select(*shape.counted)

    def _shape(self, place: int, number: int, filters: Sequence[Expression]) -> _Shape:
        from pyspark.sql import functions as spark

        heading = [spark.expr(f"cast({place} AS int) AS __instance"), spark.expr(f"cast({number} AS int) AS __source")]
        wanted = arrow_schema(self._event)
        fields = [spark.col(quoted(name)) for name in wanted.names] or [spark.lit(True).alias("__nothing")]
        content = spark.struct(*fields).alias(f"__rows{number}")
        row = [*heading, spark.col(OFFSET).alias("__order"), content]
        if not filters:
            return _Shape(row)
        needed = [one.name for one in wanted if not one.nullable and self._checked[one.name].nullable]
        missing = [spark.col(quoted(name)).isNull() for name in needed]
        tests = [expression.fold(self._event, SparkVisitor()) for expression in filters]
        good = ~reduce(or_, missing) if missing else spark.lit(True)
        steps = [reduce(and_, tests[:count], good) for count in range(len(tests) + 1)]
        return _Shape(
            row,
            reduce(or_, missing, reduce(and_, tests)),  # a row that is no event is passed on, too: Python reports it
            spark.array(*map(spark.count_if, steps)).alias("__counts"),
            [*heading, spark.expr(f"{LAST}L AS __order"), spark.col("__counts")],
        )

    def _look(self, start: int) -> _Look:
        from pyspark.sql import functions as spark

        self.looks += 1
        frame, offset = self._frame(), spark.col(OFFSET)
        if self._seen is None and (bad := frame.where(offset.isNull() | (offset < 0)).select(OFFSET).first()):
            raise _wrong_offset(self._name, f"column {self._source.offset!r} has a row with {_shown(bad[0])}")
        found = frame.where(offset >= start).agg(spark.count("*"), spark.min(offset), spark.max(offset)).first()
        self._looked = self._now()
        rows, low, high = found
        return _Look(start, low, high + 1, rows, {start: rows}) if rows else _Look(start, start, start, 0)

    def _cut(self, start: int, limit: int) -> int:
        """The offset after `limit` rows, if there are more."""
        from pyspark.sql import functions as spark

        some = self._frame().select(OFFSET).where(spark.col(OFFSET) >= start).orderBy(OFFSET).limit(limit)
        return int(some.agg(spark.max(OFFSET)).first()[0]) + 1

    def _frame(self) -> Any:
        """The DataFrame of `load`: the offset, and the event's columns with their types."""
        from pyspark.sql import DataFrame

        assert self._source.load is not None
        try:
            found = self._source.load(self._session)
        except Exception as error:
            raise _cannot_load(self._name, f"{type(error).__name__}: {_first_line(error)}") from error
        if not isinstance(found, DataFrame) or found.isStreaming:
            kind = "a streaming DataFrame" if isinstance(found, DataFrame) else f"a {type(found).__name__}"
            raise _cannot_load(self._name, f"it gave {kind}, not a batch DataFrame")
        if found.schema != self._checked:
            self._check(found.schema)
            self._checked, self._projection = found.schema, self._projected()
            self._shapes.clear()
        return found.select(*self._projection)

    def _projected(self) -> list[Any]:
        from pyspark.sql import functions as spark
        from pyspark.sql.pandas.types import from_arrow_type

        columns = [spark.col(quoted(self._source.offset)).cast("long").alias(OFFSET)]
        for one in arrow_schema(self._event):
            column = spark.col(quoted(one.name))
            if not one.type.num_fields:  # nested values are cast in Python: Spark casts by place, not by name
                column = column.cast(from_arrow_type(one.type))
            columns.append(column.alias(one.name))
        return columns

    def _check(self, schema: Any) -> None:
        from pyspark.errors import PySparkException
        from pyspark.sql.pandas.types import to_arrow_type

        wanted = {*arrow_schema(self._event).names, self._source.offset}
        columns = []
        for column in schema.fields:
            if column.name in wanted:
                try:
                    columns.append(pa.field(column.name, to_arrow_type(column.dataType)))
                except PySparkException as error:
                    raise self._misfit(f"column {column.name!r}: {_first_line(error)}") from error
                if "collate" in column.dataType.simpleString():
                    raise self._misfit(f"column {column.name!r} has a collation: {column.dataType.simpleString()}")
        found = pa.schema(columns)
        places = found.get_all_field_indices(self._source.offset)
        if len(places) != 1 or not at.is_integer(found.field(places[0]).type):
            what = str(found.field(places[0]).type) if len(places) == 1 else f"there {len(places)} times"
            names = ", ".join(schema.names)
            raise _wrong_offset(
                self._name, f"{self._source.offset!r} is {what}, not one column of whole numbers ({names})"
            )
        if trouble := misfit_of(found, self._event):
            raise self._misfit(trouble)

    def _misfit(self, what: str) -> JobFailed:
        return JobFailed(
            "SW-SOURCE-SCHEMA",
            f"{self._name}: {what}",
            f"select and cast in `load` what fits {self._event.__name__}, or declare the field as the column is",
            retryable=False,
        )

    def _guarded(self, ask: Callable[[], T]) -> T:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            return ask()
        except StreamworkError:
            raise
        except (Py4JJavaError, PySparkException) as error:
            raise _cannot_load(self._name, _first_line(error)) from error


def _cannot_load(name: str, what: str) -> JobFailed:
    return JobFailed(
        "SW-SOURCE-LOAD",
        f"{name}: the DataFrame cannot be had: {what}",
        "fix `load`, or what it reads, and start again: it is called as load(spark) and returns a batch DataFrame",
    )


def _wrong_offset(name: str, what: str) -> JobFailed:
    return JobFailed(
        "SW-SOURCE-OFFSET",
        f"{name}: {what}",
        "name a column of whole numbers from 0 on that grows with every row and is never null; cast in `load` if need be",
    )


def _shown(offset: int | None) -> str:
    return "no offset" if offset is None else f"offset {offset}"


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
