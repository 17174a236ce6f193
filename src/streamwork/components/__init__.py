"""The base classes of jobs: events, records, sources, operators, sinks, keys.

The vocabulary of the system and its Arrow types; no policy, no files, no Spark.
"""

from streamwork.components.collector import BatchCollector, EventCollector, KeyedCollector, Timer, TimerClock
from streamwork.components.grouping import Grouping
from streamwork.components.instance import Instance
from streamwork.components.keyed_columns import KeyedColumns
from streamwork.components.keys import Key
from streamwork.components.located import Located
from streamwork.components.operator import AnyOperator, KeyedOperator, Operator, StatefulOperator
from streamwork.components.position import Position
from streamwork.components.sink import (
    AnySink,
    LedgerEntry,
    LedgerRow,
    Observer,
    PreviewLabel,
    RowsRejected,
    Sink,
    SinkKind,
    WriteStopped,
)
from streamwork.components.source import (
    OffsetSource,
    OnError,
    Partitioning,
    ReadProgress,
    Slice,
    Source,
    Start,
    StatefulSource,
)
from streamwork.components.table_operator import NoState, Rows, StateTable, TableCollector, TableOperator
from streamwork.components.values import Digits, Event, Record

__all__ = [
    "AnyOperator",
    "AnySink",
    "BatchCollector",
    "Digits",
    "Event",
    "EventCollector",
    "Grouping",
    "Instance",
    "Key",
    "KeyedCollector",
    "KeyedColumns",
    "KeyedOperator",
    "LedgerEntry",
    "LedgerRow",
    "Located",
    "NoState",
    "Observer",
    "OffsetSource",
    "OnError",
    "Partitioning",
    "Operator",
    "Position",
    "PreviewLabel",
    "ReadProgress",
    "Record",
    "Rows",
    "RowsRejected",
    "Sink",
    "SinkKind",
    "Slice",
    "Source",
    "Start",
    "StateTable",
    "StatefulOperator",
    "StatefulSource",
    "TableCollector",
    "TableOperator",
    "Timer",
    "TimerClock",
    "WriteStopped",
]
