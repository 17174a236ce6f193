"""Sources and sinks that come with Streamwork.

Each is a component like any that users write. Imports components, world and, for sinks, the commit rule of `epoch`.
"""

from streamwork.connectors.json_lines import JsonLines
from streamwork.connectors.list_source import ListSource
from streamwork.connectors.log import LogSink, LogSource
from streamwork.connectors.printer import Printer
from streamwork.connectors.sqlite import SqliteSink

__all__ = ["JsonLines", "ListSource", "LogSink", "LogSource", "Printer", "SqliteSink"]
