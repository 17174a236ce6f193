"""Streamwork: stateful stream processing for Python people, on Spark, with state in open files.

The names below are all that a job needs. Each package says in its first lines what it contains; the contracts in pyproject.toml
list them from top to bottom.
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
    OffsetSource,
    Operator,
    Record,
    RowsRejected,
    Sink,
    SinkKind,
    Source,
    StatefulOperator,
    StatefulSource,
)
from streamwork.components.commit_rule import Verdict, settle
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
from streamwork.job import Backoff, Job, Retry, Stream
from streamwork.log import EventLog

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
    "ListSource",
    "LogSink",
    "LogSource",
    "OffsetSource",
    "Operator",
    "Parquet",
    "ParquetSink",
    "PostgresSink",
    "Record",
    "RedisSink",
    "Refused",
    "Retry",
    "RowsRejected",
    "Sink",
    "SinkKind",
    "SqliteSink",
    "Source",
    "StatefulOperator",
    "StatefulSource",
    "Stream",
    "StreamworkError",
    "Verdict",
    "WrongUse",
    "all_instances",
    "field",
    "fields",
    "settle",
    "shuffle",
    "single",
]
