"""Tables as the bytes of a Parquet file, and back. A row group is within the limit of a batch, so that it can be read as one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from streamwork.components.batches import gathered

ROWS_PER_GROUP = 1 << 20
BATCH = 1 << 16
"""Values that the writer encodes at a time."""


def to_bytes(
    table: pa.Table,
    dictionary: Sequence[str] | bool = True,
    statistics: Sequence[str] | bool = True,
    *,
    fast: bool = False,
) -> bytes:
    """`dictionary` names the columns for which a dictionary of values is tried, `statistics` those with statistics. A `fast` file
    is larger, and takes less time: snappy instead of zstd.
    """
    buffer = pa.BufferOutputStream()
    with pq.ParquetWriter(
        buffer,
        table.schema,
        compression="snappy" if fast else "zstd",
        use_dictionary=dictionary,
        write_statistics=statistics,
        write_batch_size=BATCH,
    ) as writer:
        for run in gathered(table.to_batches(), ROWS_PER_GROUP):
            writer.write_table(pa.Table.from_batches(run, table.schema), row_group_size=2 * ROWS_PER_GROUP)
    data: bytes = buffer.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows, row group by row group: Arrow cannot read nested columns of several that exceed its limits together."""
    # Without Arrow's thread pools: a process that ends right after using them may abort at its exit.
    with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False) as file:
        groups = range(file.num_row_groups)
        if not groups:
            return file.read(columns, use_threads=False)
        return pa.concat_tables([file.read_row_group(group, columns, use_threads=False) for group in groups])
