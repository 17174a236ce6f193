"""Savepoints of a living job, by request (`epoch.control`), one at a time, while epochs go on:

    1  capture  between two epochs: the newest completed checkpoint is pinned, so that pruning keeps its files
    2  write    in the background (`epoch.savepoints.saving`, which says what a crash leaves)
    3  answer   between two epochs, or when the driver ends: the checkpoint is no longer pinned

A driver that fails or ends waits for the savepoint in progress. One that was killed leaves it half-made; the process that asked
sees that the driver is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from streamwork.epoch.background import Background
from streamwork.epoch.control import Request
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.fences import Fences
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.participant import Participant
from streamwork.epoch.planner import Planner
from streamwork.epoch.requests import Requests
from streamwork.epoch.savepoints.record import FOLDER, Begun, SavepointRecord
from streamwork.epoch.savepoints.saving import Captured, Saver
from streamwork.epoch.store import Identity, Store
from streamwork.errors import JobFailed, StreamworkError, described
from streamwork.job import Graph
from streamwork.world import Clock

if TYPE_CHECKING:
    from streamwork.epoch.footing import Footing

NAME, NOTE, BY = "name", "note", "by"
"""The arguments of a request."""


class SavepointTaker(Participant):
    def __init__(
        self,
        graph: Graph,
        store: Store,
        clock: Clock,
        fences: Fences,
        requests: Requests,
        planner: Planner,
        background: Background,
        new_stem: Callable[[], str],
        new_uid: Callable[[], str],
    ) -> None:
        self._store = store
        self._clock = clock
        self._fences = fences
        self._requests = requests
        self._planner = planner
        self._background = background
        self._new_uid = new_uid
        self._saver = Saver(graph, store, new_stem)
        self._identity: Identity | None = None  # None before the start, and after the end
        self._under_way: tuple[Request, Future[SavepointRecord]] | None = None
        self._answered: set[str] = set()
        self.pinned: frozenset[int] = frozenset()
        """The checkpoint that is being copied."""

    def resume(self, footing: Footing) -> Sequence[str]:
        self._identity = footing.identity
        return ()

    def between(self, at: Manifest, unprepared: Sequence[Epoch]) -> None:
        if self._under_way is not None and self._under_way[1].done():
            self._answer(*self._under_way)
        for request in self._requests.savepoints:
            if self._identity is None or self._under_way is not None:
                return
            if request.id not in self._answered:
                self._begin(self._identity, request, at, unprepared)

    def close(self, unprepared: Sequence[Epoch]) -> None:
        """Wait for the savepoint in progress."""
        self._identity = None
        if self._under_way is not None:
            self._answer(*self._under_way)

    def take(self, at: Manifest, begun: Begun) -> SavepointRecord:
        """A savepoint in the foreground, while no epoch is in flight."""
        assert self._identity is not None, "the driver has started"
        captured = self._capture(self._identity, at, ())
        return self._saver.write(self._saver.begin(self._folder(begun.name), begun, captured), captured)

    def begun(self, name: str, by: str, note: str) -> Begun:
        return Begun(name, self._clock.now(), by, note, self._new_uid())

    def _begin(self, identity: Identity, request: Request, at: Manifest, unprepared: Sequence[Epoch]) -> None:
        """1. A request that is refused changes nothing."""
        name = request.arguments.get(NAME, "")
        try:
            captured = self._capture(identity, at, unprepared)
            begun = self.begun(name, request.arguments.get(BY, ""), request.arguments.get(NOTE, ""))
            writer = self._saver.begin(self._folder(name), begun, captured)
        except (StreamworkError, OSError) as error:
            self._refuse(request, error)
            return
        self.pinned = frozenset({at.epoch})
        self._under_way = request, self._background(lambda: self._saver.write(writer, captured))

    def _capture(self, identity: Identity, at: Manifest, unprepared: Sequence[Epoch]) -> Captured:
        dropped = self._fences.starts.dropped_after(at.fence)
        return self._saver.capture(identity, at, dropped, self._planner.taken(at.positions, unprepared))

    def _answer(self, request: Request, written: Future[SavepointRecord]) -> None:
        """3. An error of the savepoint is not one of the job."""
        try:
            record = written.result()
        except Exception as error:
            self._refuse(request, error)
        else:
            self._answered.add(request.id)
            self._requests.saved(request, record.epoch)
        self._under_way, self.pinned = None, frozenset()

    def _refuse(self, request: Request, error: Exception) -> None:
        self._answered.add(request.id)
        if not isinstance(error, StreamworkError):
            error = JobFailed(
                "SW-SAVEPOINT-FAILED",
                f"the savepoint could not be written: {described(error)}",
                "correct that. Remove what is left with `streamwork savepoint drop job.py NAME`, "
                "and create it again; the job goes on",
            )
        self._requests.not_saved(request, error)

    def _folder(self, name: str) -> Path:
        return self._store.folder / FOLDER / name
