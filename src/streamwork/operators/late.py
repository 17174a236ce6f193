"""Late events: what windows, tables and joins emit on their channel `late`.

An event has a last chance: a time that the watermark must not have come to before the event. That watermark is the one of the
event's own source partition, so that lateness does not depend on where the input is cut. Only an idle partition that wakes up
finds the instance's watermark beyond its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.made import annotations_of, make_event
from streamwork.components.schema import arrow_schema, fields_of
from streamwork.components.table_operator import NEVER, Rows, TableCollector
from streamwork.errors import WrongUse
from streamwork.operators.times import minimum_of

Array = np.ndarray[Any, Any]
LATE = "late"
"""The channel, and the reason of an event that is late by the watermark of its own partition."""
IDLE = "idle"
"""The reason of an event that is late only by the watermark of the instance: its partition was idle."""
BY, REASON = "late_by", "late_reason"


def late_type(event: type[Event]) -> type[Event]:
    """The type of an event on channel `late`: its fields, then `late_by` (seconds) and `late_reason`."""
    for name in (BY, REASON):
        if name in fields_of(event):
            raise WrongUse(
                "SW-TYPE-FIELD",
                f"{event.__name__}.{name} has the name of a field of the channel {LATE!r}",
                "rename it before this step, with map",
            )
    return make_event(f"Late{event.__name__}", {**annotations_of(event), BY: float, REASON: str})


class Judged(NamedTuple):
    """Which events of a batch are late, and how late."""

    late: Array
    """For each event, True if it is late."""
    by: Array
    """Microseconds between its last chance and the watermark. Only of events that are late."""
    idle: Array
    """True if it is late only because its partition was idle."""

    def batch(self, kind: type[Event], events: pa.RecordBatch) -> pa.RecordBatch:
        """The late ones, as events of their `late_type`."""
        rows = np.flatnonzero(self.late)
        reasons = pa.DictionaryArray.from_arrays(pa.array(self.idle[rows].astype(np.int8)), [LATE, IDLE])
        columns = [*events.take(pa.array(rows)).columns, pa.array(self.by[rows] / 1e6), reasons.cast(pa.string())]
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(kind))


def judge(chances: Array, watermarks: Array, minimum: int, inclusive: bool = True) -> Judged:
    """Judge events by their last chances.

    `watermarks` are those of the events' own partitions, `minimum` is that of the instance before the wave; either may be
    `NEVER`. An event whose last chance is the watermark is late if `inclusive`.
    """
    late_since = chances if inclusive else chances + 1
    own = watermarks >= late_since
    late = own | (late_since <= minimum)
    return Judged(late, np.maximum(watermarks, minimum) - chances, late & ~own & (watermarks != NEVER))


def take_in_time(
    rows: Rows,
    chances: Array,
    kind: type[Event],
    collector: TableCollector,
    channel: str = LATE,
    inclusive: bool = True,
) -> Array:
    """Judge events by their last chances, and emit those that are late, as events of `kind`. Returns the places of the others."""
    judged = judge(chances, rows.watermarks, minimum_of(collector), inclusive)
    if judged.late.any():
        collector.emit_batch(judged.batch(kind, rows.batch), channel, rows=np.flatnonzero(judged.late))
    return np.flatnonzero(~judged.late)
