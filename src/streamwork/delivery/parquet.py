"""Tables as the bytes of a Parquet file, and back."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq


def to_bytes(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd")
    data: bytes = buffer.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes, columns: list[str] | None = None) -> pa.Table:
    """Without Arrow's threads: a process that ends while they start aborts. Raises ArrowException if it is no such file."""
    return pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(columns=columns, use_threads=False)
