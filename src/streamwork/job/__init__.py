"""From a fluent description to a frozen, validated graph.

`Job` and `Stream` are what people write with; `Graph` is what everything below works on: nodes, ids, types, keys,
fingerprint.
Knows nothing of how a graph is run.
"""

from streamwork.job.backoff import Backoff
from streamwork.job.graph import Graph
from streamwork.job.job import Job
from streamwork.job.layout import Layout
from streamwork.job.node import Input, Node, NodeKind, Port
from streamwork.job.retry import Retry
from streamwork.job.settings import Settings
from streamwork.job.stream import Stream

__all__ = ["Backoff", "Graph", "Input", "Job", "Layout", "Node", "NodeKind", "Port", "Retry", "Settings", "Stream"]
