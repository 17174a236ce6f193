"""The checkpoint manager: issues checkpoint events with growing ids, and collects what the instances report.

A checkpoint is usable when all instances of all components have reported, not before.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamwork.engine.report import Report
from streamwork.job import Graph


class CheckpointManager:
    def __init__(self, graph: Graph) -> None:
        self._expected = {(node.id, instance) for node in graph.nodes for instance in range(node.parallelism)}
        self._reports: dict[int, dict[tuple[str, int], Report]] = {}

    def issue(self, epoch: int) -> None:
        assert not self._reports or epoch > max(self._reports), "ids grow"
        self._reports[epoch] = {}

    def report(self, epoch: int, reports: Sequence[Report]) -> None:
        self._reports[epoch].update(((report.component, report.instance), report) for report in reports)

    def missing(self, epoch: int) -> set[tuple[str, int]]:
        """(component, instance) of all that have not reported yet."""
        return self._expected - self._reports[epoch].keys()

    def reported(self, epoch: int) -> list[Report]:
        """The reports that are there."""
        return list(self._reports.get(epoch, {}).values())

    def complete(self, epoch: int) -> list[Report]:
        """The reports of an epoch that all instances have reported on. Ends it."""
        assert not self.missing(epoch)
        return list(self._reports.pop(epoch).values())
