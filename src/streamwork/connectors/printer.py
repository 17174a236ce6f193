"""`print()`: prints committed events."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa

from streamwork.components import Observer


class Printer(Observer):
    """Prints one line per event on standard output, after its checkpoint has completed. A crash may lose or repeat lines."""

    def observe(self, sink_id: str, batch: pa.RecordBatch) -> None:
        label = sink_id.removesuffix("-print")
        for row in batch.to_pylist():
            print(f"{label}: " + ", ".join(f"{name}={_shown(value)}" for name, value in row.items()))


def _shown(value: Any) -> str:
    return value.isoformat() if isinstance(value, date | datetime) else repr(value)
