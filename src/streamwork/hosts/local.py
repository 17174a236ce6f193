"""The local host: one process, no Spark."""

from __future__ import annotations

from collections.abc import Sequence

from streamwork.engine import Report, Work, Worker
from streamwork.job import Graph
from streamwork.world import Disk


class LocalHost:
    """Computes each epoch in this process."""

    name = "local"

    def __init__(self, disk: Disk) -> None:
        self._worker = Worker(disk)

    def compute(self, graph: Graph, works: Sequence[Work]) -> Sequence[Report]:
        reports: list[Report] = []
        for work in works:
            answer = self._worker.run(graph, "this process", work)
            if answer.failure is not None:
                raise answer.failure.to_error()
            reports += answer.reports
        return reports

    def close(self) -> None:
        self._worker.close()
