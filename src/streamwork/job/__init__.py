"""The API that builds a job, and the frozen, validated graph that it builds.

`Job` and `Stream` are the API. `Graph` is what other packages use: nodes with ports, ids, types, keys, fingerprint. `Layout`
divides a graph into chains, by the partitioning along its edges. Running a graph is the task of other packages.
"""

from streamwork.job.backoff import Backoff
from streamwork.job.graph import Graph
from streamwork.job.job import Job
from streamwork.job.joining import Table
from streamwork.job.layout import Layout
from streamwork.job.node import Input, Node, NodeKind, Port
from streamwork.job.retry import Retry
from streamwork.job.settings import Settings
from streamwork.job.stream import Stream
from streamwork.job.windowed import WindowedStream, WindowResults

__all__ = [
    "Backoff",
    "Graph",
    "Input",
    "Job",
    "Layout",
    "Node",
    "NodeKind",
    "Port",
    "Retry",
    "Settings",
    "Stream",
    "Table",
    "WindowResults",
    "WindowedStream",
]
