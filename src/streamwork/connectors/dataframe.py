"""A batch DataFrame of Spark as a source. This class describes it; the host reads the rows (`hosts.spark_table`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from streamwork.components import Event, OffsetSource, OnError, Slice, Start
from streamwork.components.duration import seconds
from streamwork.components.schema import fields_of
from streamwork.components.source import check_on_error
from streamwork.connectors.checked import checked_slice
from streamwork.errors import WrongUse

E = TypeVar("E", bound=Event)
PARTITION = "0"


class Table(Protocol):
    """The rows of a `DataFrameSource`, read by a host."""

    def end(self, start: int, limit: int) -> int:
        """The offset after at most `limit` rows from `start`; `start` if there is nothing new."""

    def has_more(self, end: int) -> bool:
        """As `OffsetSource.has_more`."""


class DataFrameSource(OffsetSource[E], Generic[E]):
    """The rows of a DataFrame: ``DataFrameSource(lambda spark: spark.read.schema(S).parquet("views"), View, offset="id")``.

    `load` returns the DataFrame. It is called for every plan and every read, so that it includes added rows.
    `offset` names a column of whole numbers from 0 on. Exactly-once requires that:

    - every row has a unique offset, which never changes;
    - rows are only appended: once a row is visible, no row with a lower offset is added;
    - rows do not change while a retained checkpoint may have to read them again, and `load` is deterministic.
      The same offsets give the same rows.

    The source has one partition, in the order of offsets, so one instance takes the rows, with any `parallelism`. Spark reads
    and filters on all cores before that, and operators after an exchange run on all cores again.

    Columns are matched to fields by name; further columns are not read. A column must have the field's type or convert to it
    without loss. `on_error` applies to a row with a value that does not fit: "fail" names offset and field, "drop"
    skips and counts the row, "dead-letter" also keeps it. The default follows the semantics.
    `look_every` is the minimum time between two queries for new rows, after a query that found none.
    """

    def __init__(
        self,
        load: Callable[[Any], Any],
        event: type[E],
        offset: str,
        on_error: OnError | None = None,
        max_events: int = 1_000_000,
        start: Start = "stored",
        look_every: str | float = "1s",
        bounded: bool = False,
    ) -> None:
        fields_of(event)
        if not callable(load):
            raise WrongUse(
                "SW-JOB-SETTING",
                f"`load` of DataFrameSource is a {type(load).__name__}",
                "pass a function that takes the Spark session and returns a DataFrame",
            )
        self.event = event
        self.max_events = max_events
        self.start = start
        self.bounded = bounded
        self.load: Callable[[Any], Any] | None = load
        self.offset = offset
        self.look_every = seconds(look_every)
        self.on_error = check_on_error(on_error)
        self._table: Table | None = None

    def bind(self, table: Table) -> None:
        """Set the table to read from. A host with Spark calls it before the first plan."""
        self._table = table

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "load": None, "_table": None}  # only the driver has the Spark session

    def native(self) -> DataFrameSource[E]:
        return self

    def partitions(self) -> list[str]:
        return [PARTITION]

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        table = self._bound()
        return {partition: table.end(start, limit) for partition, start in starts.items()}

    def has_more(self, ends: Mapping[str, int]) -> bool:
        table = self._bound()
        return any(table.has_more(end) for end in ends.values())

    def _bound(self) -> Table:
        if self._table is None:
            raise no_spark("a DataFrameSource")
        return self._table

    def known_ends(self, starts: Mapping[str, int]) -> Mapping[str, int]:
        """Nothing: it would take a query over the whole table."""
        return {}

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        raise no_spark("a DataFrameSource")

    def take(self, name: str, offsets: pa.Array, rows: pa.RecordBatch) -> Slice:
        """The events of rows that Spark has read. `name` is the source's id."""
        action = 'correct the rows, cast them in `load`, or skip such rows with on_error="drop"'
        places = offsets.to_numpy()
        return checked_slice(
            self.event, rows, self.on_error, lambda row: f"{name} offset {places[row]}", action, places
        )


def no_spark(what: str) -> WrongUse:
    return WrongUse(
        "SW-SOURCE-NO-SPARK",
        f"{what} reads a DataFrame of Spark, and this mode runs without Spark",
        "run it with --mode microbatch; in a test, pass its events: run(job, inputs={ID: [...]})",
    )
