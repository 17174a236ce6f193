"""A static table: a Parquet file or folder, an Arrow table, or a data frame."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.types as at

from streamwork.components import Digits
from streamwork.components.batches import one_array
from streamwork.components.field_types import MISFITS, Misfit
from streamwork.components.made import make_event
from streamwork.components.schema import arrow_schema, check_columns
from streamwork.errors import WrongUse
from streamwork.operators.joins.columns import Array
from streamwork.operators.joins.key_index import KeyIndex
from streamwork.operators.joins.reference import Reference
from streamwork.operators.joins.result import Side


class StaticTable(Reference):
    """A table that does not change while the job runs: ``clicks.join(StaticTable("users.parquet"), key="user", id="named")``.

    `data` is the path of a Parquet file or folder, an Arrow table, or a data frame (pandas, Polars, Spark), which is collected
    when the job is built. A path is read by each worker when it starts; a file that changes takes effect at the next start.
    `key` names the key columns, if they are not named like those of the stream; `name` stands before columns whose names are
    taken.
    """

    def __init__(self, data: Any, *, key: str | Iterable[str] | None = None, name: str | None = None) -> None:
        self._path: Path | None = None
        self._table: pa.Table | None = None
        if isinstance(data, str | Path):
            self._path = Path(data)
        else:
            self._table = _collected(data)
        self._key = None if key is None else (key,) if isinstance(key, str) else tuple(key)
        self._name = name or (self._path.stem if self._path is not None else "static")
        self._side: Side | None = None

    def placed(self, home: Path, key: tuple[str, ...]) -> Self:
        """This table with its path resolved against `home`, with this key if it has none of its own, and its type known."""
        mine = copy.copy(self)
        if self._path is not None:
            mine._path = home / self._path
        schema = _schema(mine._path, self._table, self._name)
        mine._key = self._key or key
        for field in mine._key:
            if field not in schema.names:
                raise WrongUse(
                    "SW-KEY-FIELD",
                    f"table {self._name!r} has no column {field!r}",
                    f"use one of: {', '.join(schema.names)}",
                )
        fields = {field.name: _annotation(field, self._name) for field in schema}
        mine._side = Side(self._name, make_event("StaticRow", fields), mine._key)
        return mine

    @property
    def side(self) -> Side:
        assert self._side is not None, "a table is placed in a job first"
        return self._side

    def open(self) -> None:
        table = self._table if self._path is None else _read(self._path, _versions(self._path), self._name)
        try:
            self._rows = _fitted(table, arrow_schema(self.side.event))
            check_columns(self.side.event, self._rows)
        except Misfit as misfit:
            raise ValueError(f"table {self._name!r}, column {misfit.path!r}: {misfit}") from None
        except MISFITS as error:
            raise ValueError(
                f"table {self._name!r} no longer has the columns that it had when the job was built ({error}): restart the job"
            ) from None
        self._index = KeyIndex([self._rows.column(name) for name in self.side.key])

    def find(self, keys: pa.RecordBatch) -> tuple[Array, pa.RecordBatch]:
        asked, found = self._index.matches(keys.columns)
        return asked, self._rows.take(pa.array(found))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_rows", "_index")}


def _collected(data: Any) -> pa.Table:
    """The Arrow table of a table or data frame."""
    for name in ("toArrow", "to_arrow"):  # Spark, Polars
        if hasattr(data, name):
            data = getattr(data, name)()
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return data
    try:
        return pa.Table.from_pandas(data, preserve_index=False)
    except Exception:
        raise WrongUse(
            "SW-JOIN-TABLE",
            f"a {type(data).__name__} is not a table",
            "give a Parquet path, an Arrow table or a data frame",
        ) from None


def _schema(path: Path | None, table: pa.Table | None, name: str) -> pa.Schema:
    """The columns, each nullable if it has a null. Of a path only the footers of its files are read."""
    if table is not None:
        nulls = {field.name for field in table.schema if table.column(field.name).null_count}
        schema = table.schema
    else:
        assert path is not None
        dataset = _dataset(path, name)
        schema, nulls = dataset.schema, {null for fragment in dataset.get_fragments() for null in _nulls(fragment)}
    return pa.schema([pa.field(field.name, field.type, field.name in nulls) for field in schema])


def _nulls(fragment: Any) -> Iterator[str]:
    """The columns of a Parquet file that have nulls, or may have."""
    footer = fragment.metadata
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            column = footer.row_group(group).column(number)
            found = column.statistics
            if found is None or not found.has_null_count or found.null_count:
                yield column.path_in_schema.partition(".")[0]


def _versions(path: Path) -> tuple[tuple[str, int, int], ...]:
    """What changes when the files of a path do."""
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    return tuple((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.exists())


@lru_cache(maxsize=8)
def _read(path: Path, versions: tuple[Any, ...], name: str) -> pa.Table:
    return _dataset(path, name).to_table()


def _dataset(path: Path, name: str) -> ds.Dataset:
    try:
        return ds.dataset(path, format="parquet")
    except (OSError, pa.ArrowInvalid) as error:
        raise WrongUse(
            "SW-JOIN-TABLE", f"table {name!r} cannot be read: {error}", "name a Parquet file, or a folder of such files"
        ) from None


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """One batch with these columns."""
    columns = []
    for field in schema:
        column = table.column(field.name)
        column = one_array(column.chunks, column.type)
        if column.type != field.type:
            column = pc.cast(column, field.type)
        if column.null_count and not field.nullable:
            raise pa.ArrowInvalid(f"{field.name!r} has nulls")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _annotation(field: pa.Field, table: str) -> Any:
    """The annotation of an event's field that holds the values of a column."""
    kind = field.type.value_type if at.is_dictionary(field.type) else field.type
    tests: list[tuple[bool, Any]] = [
        (at.is_string(kind) or at.is_large_string(kind) or at.is_string_view(kind), str),
        (at.is_boolean(kind), bool),
        (at.is_integer(kind), int),
        (at.is_floating(kind), float),
        (at.is_binary(kind) or at.is_large_binary(kind), bytes),
        (at.is_timestamp(kind) and kind.tz is not None, datetime),
        (at.is_date(kind), date),
    ]
    found = next((annotation for fits, annotation in tests if fits), None)
    if at.is_decimal128(kind):
        from decimal import Decimal

        found = Annotated[Decimal, Digits(kind.precision, kind.scale)]
    if found is None:
        raise WrongUse(
            "SW-JOIN-TABLE",
            f"column {field.name!r} of table {table!r} is {field.type}, which has no place in an event",
            "leave it out, or convert it; a timestamp needs a time zone",
        )
    return found | None if field.nullable else found
