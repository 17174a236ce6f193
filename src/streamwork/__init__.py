"""Streamwork: stateful stream processing in Python, on Spark, with state in open files.

Jobs import the names below. The docstring of each package describes its content; the contracts in pyproject.toml
list the packages from top to bottom.
"""

from streamwork import early  # noqa: F401  first of all: it listens to signals while the others are imported

# isort: split
from streamwork.cli.run_here import run_here
from streamwork.components import (
    BatchCollector,
    Digits,
    Event,
    EventCollector,
    Instance,
    KeyedCollector,
    KeyedColumns,
    KeyedOperator,
    LedgerEntry,
    LedgerRow,
    NoState,
    Observer,
    OffsetSource,
    OnError,
    Operator,
    Partitioning,
    Position,
    PreviewLabel,
    ReadProgress,
    Record,
    Rows,
    RowsRejected,
    Sink,
    SinkKind,
    Slice,
    Source,
    Start,
    StatefulOperator,
    StatefulSource,
    StateTable,
    TableCollector,
    TableOperator,
    WriteStopped,
)
from streamwork.components.commit_rule import Verdict, advanced, registered, settle
from streamwork.components.expression import field
from streamwork.components.grouping import all_instances, fields, shuffle, single
from streamwork.connectors import (
    CallableSink,
    Csv,
    DataFrameSource,
    JsonLines,
    ListSource,
    LogSink,
    LogSource,
    Parquet,
    ParquetSink,
    PostgresSink,
    Printer,
    RedisSink,
    SqliteSink,
)
from streamwork.errors import JobFailed, Refused, StreamworkError, WrongUse
from streamwork.job import Backoff, Job, Retry, Stream, Table
from streamwork.log import EventLog
from streamwork.operators import Lookup, StaticTable

__version__ = "0.1.0"

# `job` imports nothing of the packages above it; what it needs of them is set here.
Job.runner = staticmethod(run_here)
Job.printer = Printer

__all__ = [
    "Backoff",
    "BatchCollector",
    "CallableSink",
    "Csv",
    "DataFrameSource",
    "Digits",
    "Event",
    "EventLog",
    "EventCollector",
    "Instance",
    "Job",
    "JobFailed",
    "JsonLines",
    "KeyedCollector",
    "KeyedColumns",
    "KeyedOperator",
    "LedgerEntry",
    "LedgerRow",
    "NoState",
    "ListSource",
    "LogSink",
    "LogSource",
    "Lookup",
    "Observer",
    "OffsetSource",
    "OnError",
    "Operator",
    "Parquet",
    "ParquetSink",
    "Partitioning",
    "Position",
    "PostgresSink",
    "PreviewLabel",
    "ReadProgress",
    "Record",
    "Rows",
    "RedisSink",
    "Refused",
    "Retry",
    "RowsRejected",
    "Sink",
    "SinkKind",
    "Slice",
    "SqliteSink",
    "Source",
    "Start",
    "StateTable",
    "StaticTable",
    "StatefulOperator",
    "StatefulSource",
    "Table",
    "TableCollector",
    "TableOperator",
    "Stream",
    "StreamworkError",
    "Verdict",
    "WriteStopped",
    "WrongUse",
    "advanced",
    "all_instances",
    "field",
    "fields",
    "registered",
    "settle",
    "shuffle",
    "single",
]
