"""The parts of a driver that take part in its epochs, and the order in which they are informed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamwork.epoch.background import Background
from streamwork.epoch.claims import Claims
from streamwork.epoch.compactor import Compactor
from streamwork.epoch.fences import Fences
from streamwork.epoch.history.lag import InputEnds
from streamwork.epoch.history.recorder import Recorder
from streamwork.epoch.history.recording import EpochRecorder
from streamwork.epoch.host import Host
from streamwork.epoch.in_doubt import Doubts
from streamwork.epoch.participant import Participant
from streamwork.epoch.planner import Planner
from streamwork.epoch.pruning import Pruner
from streamwork.epoch.read_progress import ProgressReporter
from streamwork.epoch.redelivery import Redelivery
from streamwork.epoch.requests import Requests
from streamwork.epoch.savepoints.taking import SavepointTaker
from streamwork.epoch.sinks import Sinks
from streamwork.epoch.sizing import Sizing
from streamwork.epoch.store import Store
from streamwork.epoch.views import Views
from streamwork.job import Graph, Settings
from streamwork.state import StateFiles
from streamwork.world import Clock, SteadyClock


class Parts:
    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        store: Store,
        clock: Clock,
        fences: Fences,
        host: Host,
        recorder: Recorder,
        background: Background,
        new_stem: Callable[[], str],
        new_uid: Callable[[], str],
        requests: Requests,
        more: Sequence[Participant],
    ) -> None:
        """`new_stem` gives names that were never used before: fence and attempt. `more` participants are informed last."""
        steady, files = SteadyClock(clock), StateFiles(store.disk, store.folder)
        self.sinks = Sinks(graph, store)
        self.doubts = Doubts(graph, recorder)
        self.redelivery = Redelivery(graph, settings, store, new_stem, lambda: _microseconds(steady.now()))
        sizing = Sizing(graph, settings, clock, host.sizes_slices)
        self.planner = Planner(
            graph,
            store,
            self.redelivery,
            InputEnds(graph, clock, recorder),
            lambda: _microseconds(clock.now()),
            host.ends_known,
            Claims(store.disk, store.folder) if host.continuous else None,
            sizing,
        )
        self.compactor = Compactor(graph, files, background, new_stem, store.discard_files)
        self.savepoints = SavepointTaker(
            graph, store, clock, fences, requests, self.planner, background, new_stem, new_uid
        )
        self.pruner = Pruner(store, fences, self.compactor, (self.compactor, self.savepoints), settings.retain)
        views = Views(graph, store, fences)
        self.progress = ProgressReporter(graph, store.folder.name, fences, self.pruner, views, clock)
        self.participants: tuple[Participant, ...] = (
            self.doubts,  # first: input in doubt is recorded even if a later participant fails
            self.planner,  # before redelivery: it refuses a changed input, which redelivery would read
            self.redelivery,
            self.sinks,  # before the compactor: rows are shown before snapshots are begun
            self.compactor,  # last to contribute: it replaces state files in the draft
            views,
            EpochRecorder(clock, recorder),  # behind all that may fail: an epoch is recorded when it is over
            sizing,  # behind all that takes time
            self.progress,
            self.savepoints,
            *more,
        )


def _microseconds(seconds: float) -> int:
    """Microseconds since 1970."""
    return round(seconds * 1_000_000)
