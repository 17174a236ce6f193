"""Reports to the sources from which offsets on this job needs them, so that they can remove older input."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamwork.components import ReadProgress
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.fences import Fences
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.participant import Participant
from streamwork.epoch.pruning import Pruner
from streamwork.epoch.views import Views
from streamwork.errors import StreamworkError
from streamwork.job import Graph
from streamwork.world import Clock

if TYPE_CHECKING:
    from streamwork.epoch.footing import Footing

EVERY_SECONDS = 10.0
"""How often progress is reported. After a late report sources only keep more."""


class ProgressReporter(Participant):
    """A job needs what the oldest kept checkpoint has not read: a start may fall back to it."""

    def __init__(self, graph: Graph, job: str, fences: Fences, pruner: Pruner, views: Views, clock: Clock) -> None:
        """`job` is the name of its folder."""
        self._graph = graph
        self._job = job
        self._fences = fences
        self._pruner = pruner
        self._views = views
        self._clock = clock
        self._fence = 0
        self._at: Manifest | None = None
        self._reported = float("-inf")  # when progress was last reported, and of which checkpoint
        self._reported_at = -1

    def resume(self, footing: Footing) -> Sequence[str]:
        self._fence, self._at = footing.fence, footing.at
        return ()

    def finished(self, epoch: Epoch) -> None:
        self._at = epoch.manifest
        self._report_if_due(epoch.manifest)

    def report_if_new(self) -> None:
        """After a start, and where there is nothing to plan."""
        if self._at is not None and self._reported_at != self._at.epoch:
            self._report_if_due(self._at)

    def close(self, unprepared: Sequence[Epoch]) -> None:
        if self._at is not None and self._reported_at >= 0:
            with contextlib.suppress(StreamworkError, OSError):
                self._fences.check(self._fence)  # a newer driver may need what this one does not
                self._report(self._at)

    def _report_if_due(self, at: Manifest) -> None:
        if self._clock.monotonic() >= self._reported + EVERY_SECONDS:
            self._report(at)

    def _report(self, at: Manifest) -> None:
        self._reported, self._reported_at = self._clock.monotonic(), at.epoch
        for node in self._graph.planned:
            needed, read = self._pruner.oldest.positions.of(node.id), at.positions.of(node.id)
            node.component.keep(ReadProgress(at.uid, self._job, node.id, needed, read))
        self._views.restore()
