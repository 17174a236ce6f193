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

    def compute(self, graph: Graph, work: Work) -> Sequence[Report]:
        answer = self._worker.run(graph, "this process", work, instance=0)
        if answer.failure is not None:
            raise answer.failure.to_error()
        return answer.reports

    def close(self) -> None:
        self._worker.close()
