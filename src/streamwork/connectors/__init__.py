"""Sources and sinks that come with Streamwork.

Each is an ordinary component, built on the same base classes as those that users write.
"""

from streamwork.connectors.callable import CallableSink
from streamwork.connectors.csv_lines import Csv
from streamwork.connectors.dataframe import DataFrameSource
from streamwork.connectors.json_lines import JsonLines
from streamwork.connectors.kafka import AvroFormat, KafkaSink, KafkaSource
from streamwork.connectors.list_source import ListSource
from streamwork.connectors.log import LogSink, LogSource
from streamwork.connectors.parquet import Parquet
from streamwork.connectors.parquet_sink import ParquetSink
from streamwork.connectors.postgres import PostgresSink
from streamwork.connectors.printer import Printer
from streamwork.connectors.redis import RedisSink
from streamwork.connectors.sqlite import SqliteSink

__all__ = [
    "AvroFormat",
    "CallableSink",
    "Csv",
    "DataFrameSource",
    "JsonLines",
    "KafkaSink",
    "KafkaSource",
    "ListSource",
    "LogSink",
    "LogSource",
    "Parquet",
    "ParquetSink",
    "PostgresSink",
    "Printer",
    "RedisSink",
    "SqliteSink",
]
