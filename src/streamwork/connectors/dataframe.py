"""Any batch DataFrame of Spark's as a source: a description here; the host brings the rows (`hosts.spark_table`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from streamwork.components import Event, OffsetSource, OnError, Slice, Start
from streamwork.components.schema import fields_of
from streamwork.components.source import check_on_error
from streamwork.connectors.checked import checked_slice
from streamwork.errors import WrongUse
from streamwork.job.duration import seconds

E = TypeVar("E", bound=Event)
PARTITION = "0"


class Table(Protocol):
    """What a host knows about the rows of a `DataFrameSource`."""

    def end(self, start: int, max_events: int) -> int:
        """As `OffsetSource.end`."""


class DataFrameSource(OffsetSource[E], Generic[E]):
    """The rows of a DataFrame: ``DataFrameSource(lambda spark: spark.read.schema(S).parquet("views"), View, offset="id")``.

    `load` makes the DataFrame; it is called whenever there is something to plan or to read, so that it sees what was added.
    `offset` names a column of whole numbers from 0 on. Exactly-once rests on what you promise about it:

    - every row has an offset of its own, which never changes;
    - rows are added at the end only: when a row can be seen, no row with a lower offset will come any more;
    - rows stay as they are for as long as a kept checkpoint may have to read them again, and `load` does not depend on time,
      chance or anything else that changes. The same offsets give the same rows.

    There is one partition, in the order of offsets, so one instance takes the rows, whatever its `parallelism`; Spark reads
    and filters on all cores before that, and what is behind an exchange runs on all cores again.

    Columns belong to fields by name; further columns are not read. A column's type must be the field's or turn into it
    without loss. `on_error` says what becomes of a row with a value that does not fit: "fail" names offset and field, "drop"
    leaves the row out and counts it, "dead-letter" also keeps it; the default follows the semantics.
    `look_every` is how long Spark is not asked again when it had nothing new.
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
                f"DataFrameSource is given a {type(load).__name__} to load with",
                "give a function that takes the Spark session and returns a DataFrame",
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
        """Called by a host that has Spark, before anything is planned."""
        self._table = table

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "load": None, "_table": None}  # Spark's session is the driver's

    def native(self) -> DataFrameSource[E]:
        return self

    def partitions(self) -> list[str]:
        return [PARTITION]

    def end(self, partition: str, start: int, max_events: int) -> int:
        if self._table is None:
            raise no_spark("a DataFrameSource")
        return self._table.end(start, max_events)

    def known_end(self, partition: str, start: int) -> None:
        """To find it would be a query over the whole table."""

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        raise no_spark("a DataFrameSource")

    def take(self, name: str, offsets: pa.Array, rows: pa.RecordBatch) -> Slice:
        """The events of rows that Spark has brought; `name` is the source's id."""
        action = 'correct the rows, cast them in `load`, or leave such rows out with on_error="drop"'
        places = offsets.to_numpy()
        return checked_slice(
            self.event, rows, self.on_error, lambda row: f"{name} offset {places[row]}", action, places
        )


def no_spark(what: str) -> WrongUse:
    return WrongUse(
        "SW-SOURCE-NO-SPARK",
        f"{what} reads a DataFrame of Spark's, and there is no Spark in this mode",
        "run it with --mode microbatch; a test gives its events instead: run(job, inputs={ID: [...]})",
    )
