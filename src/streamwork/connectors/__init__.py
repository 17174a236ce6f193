"""Sources and sinks that come with Streamwork.

Each is a component like any that users write. Imports components, world and, for sinks, the commit rule of `epoch`.
"""

from streamwork.connectors.csv_lines import Csv
from streamwork.connectors.dataframe import DataFrameSource
from streamwork.connectors.json_lines import JsonLines
from streamwork.connectors.list_source import ListSource
from streamwork.connectors.log import LogSink, LogSource
from streamwork.connectors.parquet import Parquet
from streamwork.connectors.printer import Printer
from streamwork.connectors.sqlite import SqliteSink

__all__ = [
    "Csv",
    "DataFrameSource",
    "JsonLines",
    "ListSource",
    "LogSink",
    "LogSource",
    "Parquet",
    "Printer",
    "SqliteSink",
]
