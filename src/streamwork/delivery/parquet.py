"""Tables as the bytes of a Parquet file."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq


def to_bytes(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd")
    data: bytes = buffer.getvalue().to_pybytes()
    return data
