"""Measures what epochs cost, and sizes the slices of the next ones (`epoch.slice_size`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from streamwork.components.source import EVERYTHING
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.participant import Participant
from streamwork.epoch.slice_size import SliceSize
from streamwork.job import Graph, Node, Settings
from streamwork.world import Clock


class _Begun(NamedTuple):
    at: float
    asked: int


class Sizing(Participant):
    def __init__(self, graph: Graph, settings: Settings, clock: Clock, wanted: bool) -> None:
        """`wanted` is False for a host that does not compute slice by slice: then `max_events` alone limits a slice."""
        most_once = graph.promise.at_most_once
        self._size = SliceSize(settings.checkpoint_every, settings.target_epoch, most_once)
        self._wanted = wanted and self._size.is_known
        self._sources = {node.id: int(node.component.max_events) for node in graph.sources}
        self._full: Collection[str] = ()
        self._clock = clock
        self._began: dict[int, _Begun] = {}
        self._finished = float("-inf")

    def most(self, node: Node) -> int:
        """How many events of a source an epoch takes: at most `max_events`. A backlog in one source gets what others leave."""
        mine = int(node.component.max_events)
        if not self._wanted or mine >= EVERYTHING:
            return mine
        shared = {name for name in self._full if name != node.id} | {node.id}
        return max(1, min(mine, self._size.events * mine // max(1, sum(self._sources[name] for name in shared))))

    def filled(self, sources: Collection[str]) -> None:
        """These sources had more input than the last plan took."""
        self._full = tuple(sources)

    def planned(self, epoch: Epoch) -> None:
        self._began[epoch.number] = _Begun(self._clock.monotonic(), self._size.events)

    def finished(self, epoch: Epoch) -> None:
        """Where epochs overlap, an epoch costs the time since the one before it was finished."""
        now = self._clock.monotonic()
        began, asked = self._began.pop(epoch.number, _Begun(now, 0))
        self._size.measured(epoch.manifest.events, now - max(began, self._finished), bool(self._full), asked)
        self._finished = now

    def idle(self, epoch: Epoch) -> None:
        self._began.pop(epoch.number, None)

    def abandoned(self, epoch: Epoch) -> None:
        self._began.pop(epoch.number, None)
