"""The rows of two sinks: by key, if their sinks keep the newest row of each key; else as multisets.

A multiset counts how often each row is there.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.statefiles.component_state import in_order
from streamwork.statefiles.diff import RowDiff
from streamwork.statefiles.plain_values import plain

COUNT = "times"
"""The column of a multiset that says how often a row is there."""


def output_diff(
    before: pa.Table, after: pa.Table, key: tuple[str, ...], other: tuple[str, ...]
) -> tuple[RowDiff | None, tuple[str, ...]]:
    """The differences, and what is different about the columns. None if the sinks have different keys."""
    schema = schema_changes(before.schema, after.schema)
    if key != other:
        return None, (f"the key was ({', '.join(key) or 'none'}) and is ({', '.join(other) or 'none'})", *schema)
    if any(before.schema.field(name).type != after.schema.field(name).type for name in key):
        return None, schema
    return row_diff(before, after, key), schema


def row_diff(before: pa.Table, after: pa.Table, key: tuple[str, ...]) -> RowDiff:
    """By the key, or without one as multisets of the columns that both have."""
    common = [name for name in before.column_names if name in after.column_names]
    if key:
        return RowDiff(before, after, key, tuple(name for name in common if name not in key))
    rows = tuple(name for name in common if before.schema.field(name).type == after.schema.field(name).type)
    return RowDiff(counted(before.select(rows)), counted(after.select(rows)), rows, (COUNT,))


def counted(table: pa.Table) -> pa.Table:
    """Every distinct row with the number of times that it is there. Floats, and what is nested, are text."""
    columns = {name: _groupable(table.column(name)) for name in table.column_names}
    names = list(columns)
    found = pa.table(columns).group_by(names, use_threads=False).aggregate([([], "count_all")])
    return in_order(found.select([*names, "count_all"]).rename_columns([*names, COUNT]), names)


def row_counts(multisets: RowDiff) -> tuple[int, int, int]:
    """How many rows of two multisets are the same, only in the first, and only in the second."""
    found = []
    for table, sides in ((multisets.before, ("a", "b")), (multisets.after, ("b", "a"))):
        times = table.column(COUNT)
        found.append(
            table.drop_columns([COUNT]).append_column(sides[0], times).append_column(sides[1], pc.multiply(times, 0))
        )
    both = pa.concat_tables([found[0], found[1].select(found[0].column_names)])
    sums = both.group_by(list(multisets.key), use_threads=False).aggregate([("a", "sum"), ("b", "sum")])
    a, b = sums.column("a_sum"), sums.column("b_sum")
    same = pc.sum(pc.min_element_wise(a, b)).as_py() or 0
    return same, (pc.sum(a).as_py() or 0) - same, (pc.sum(b).as_py() or 0) - same


def _groupable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_floating(kind):
        whole = pc.equal(column, 0.0).fill_null(False)  # 0.0 and -0.0 are equal
        return pc.if_else(whole, pa.scalar(0.0, kind), column).cast(pa.string())
    if not kind.num_fields:
        return column
    encode = msgspec.json.Encoder(order="sorted").encode
    texts: list[Any] = [None if v is None else encode(plain(v, kind)).decode() for v in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


def schema_changes(before: pa.Schema, after: pa.Schema) -> tuple[str, ...]:
    """How the columns differ, as text."""
    found = [f"{name} is gone" for name in before.names if name not in after.names]
    found += [f"{name} is new" for name in after.names if name not in before.names]
    found += [
        f"{field.name} was {field.type} and is {after.field(field.name).type}"
        for field in before
        if field.name in after.names and after.field(field.name).type != field.type
    ]
    return tuple(found)
