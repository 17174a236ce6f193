"""All sources of a job whose rows are in Spark's JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamwork.connectors.dataframe import DataFrameSource
from streamwork.engine import Assignment
from streamwork.hosts.spark_table import SparkTable
from streamwork.job import Graph, Layout


class SparkTables:
    def __init__(self, session: Any) -> None:
        self._session = session
        self._tables: dict[str, SparkTable] = {}

    def open(self, graph: Graph) -> None:
        """Bind every such source of the graph to its table in this Spark."""
        self._tables.clear()
        for node in graph.planned:
            source = node.component.native()
            if source is not None:
                assert isinstance(source, DataFrameSource)
                self._tables[node.id] = SparkTable(self._session, source, node.id)
                source.bind(self._tables[node.id])

    def slices(self, layout: Layout, works: Sequence[Assignment]) -> tuple[tuple[str, ...], list[Any]]:
        """The slices that an epoch reads into a stage: the sources in the order of their rows, and the rows."""
        names: list[str] = []
        frames: list[Any] = []
        for place, work in enumerate(works):
            for name, extents in work.extents.items():
                if name in self._tables:
                    filters = [layout.graph[step].component.expression for step in layout.native[name].filters]
                    for extent in extents.values():
                        assert extent.end is not None, "slices of a DataFrame are known by plan"
                        frames += self._tables[name].slices(place, len(names), extent.start, extent.end, filters)
                    names.append(name)
        return tuple(names), frames
