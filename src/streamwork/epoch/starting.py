"""The start of a driver: it takes the job over and brings everything to one checkpoint. `epoch.recovery.recovery` numbers the
steps; this file does them in order, up to 8. The driver prunes (9) when its participants have resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from streamwork.components import Position
from streamwork.epoch.claims import Claims
from streamwork.epoch.fences import Fences
from streamwork.epoch.footing import Footing
from streamwork.epoch.manifest import Plan
from streamwork.epoch.phases import Phase
from streamwork.epoch.recovery.fit import not_held
from streamwork.epoch.recovery.recovery import Recovered, Recovery
from streamwork.epoch.sinks import Sinks
from streamwork.epoch.start_records import Drop
from streamwork.epoch.store import Identity, Store
from streamwork.errors import Refused
from streamwork.job import Graph, Settings
from streamwork.world import Clock

Tell = Callable[[Phase, int], None]


class Started(msgspec.Struct, frozen=True):
    """What a start found and did."""

    fence: int
    new: bool
    resumed_at: int
    rolled_forward: int | None
    story: tuple[str, ...] = ()
    # source/partition -> the offsets, from and to, that `start="latest"` skips
    skipped: dict[str, tuple[int, int]] = {}


class Start:
    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        store: Store,
        clock: Clock,
        fences: Fences,
        sinks: Sinks,
        recovery: Recovery,
        drop: Drop,
        new_uid: Callable[[], str],
        take_over: bool,
    ) -> None:
        self._graph = graph
        self._settings = settings
        self._store = store
        self._clock = clock
        self._fences = fences
        self._sinks = sinks
        self._recovery = recovery
        self._drop = drop
        self._new_uid = new_uid
        self._take_over = take_over

    def run(self, tell: Tell) -> tuple[Footing, Recovered]:
        """1 to 8."""
        found = self._store.identity()
        started = self._store.newest_number() > 0 or bool(self._fences.starts.numbers())
        identity = self._check(found, started)  # 1, 2
        killed = self._fences.cut_short()
        seen = [row.fence for row in self._sinks.ledgers(identity.uid).values() if row is not None]
        self._check_moved(max(seen, default=0))
        fence = self._fences.claim(max(seen, default=0), self._settings.lease).fence  # 3
        self._sinks.register(identity.uid, fence, lambda name: tell(Phase.REGISTER, 0))  # 4
        point = self._recovery.read(identity, fence)  # 5
        tell(Phase.READ, point.at.epoch)
        recovered = self._recovery.finish(point, fence, lambda phase, m: tell(phase, m.epoch))  # 6, 7, 8
        planned: Sequence[Plan] = ()
        claimed = Position()
        if self._graph.promise.at_most_once:
            planned = self._recovery.plans_beyond(recovered.at)
            claimed = Claims(self._store.disk, self._store.folder).settle(self._graph, fence)
        footing = Footing(
            identity=identity,
            new=found is None,
            fence=fence,
            at=recovered.at,
            rolled_forward=recovered.rolled_forward,
            refused=self._sinks.refused(recovered.base.epoch),
            planned=tuple(planned),
            lost=self._recovery.planned_beyond(planned).furthest(claimed),
            claimed=claimed,
            killed=killed,
            rewritten_from=None if recovered.base is recovered.at else recovered.base,
        )
        return footing, recovered

    def _check(self, identity: Identity | None, started: bool) -> Identity:
        """Refuse a job that cannot go on from what is stored or written, and wait for another driver. Then the folder is there."""
        if identity is not None and not isinstance(identity.origin, msgspec.UnsetType) and not self._has_begun():
            raise Refused(
                "SW-ROOT-UNFINISHED",
                f"{self._store.folder} was to begin with a savepoint, and that was interrupted: there is no state in it yet",
                "start it from the savepoint again (--from); or remove the folder, if it is a fork, and fork again",
            )
        if identity is not None and started:
            self._recovery.check_job(identity)  # 1
        elif self._drop.components:
            raise not_held(self._drop.components, ())
        self._fences.wait(self._settings.lease, self._take_over)  # 2
        self._sinks.check_targets("" if identity is None else identity.uid)
        if identity is not None and started:
            self._recovery.check_sinks(identity)
        self._sinks.open()
        if identity is None:
            return self._store.create(self._graph, self._new_uid(), self._settings.groups, self._clock)
        if not started:  # the folder was created, and no driver has got as far as to start
            self._store.restore_beginning(self._graph, identity)
        return identity

    def _has_begun(self) -> bool:
        """True if a start was recorded: by a restore, as its last step, or by a driver."""
        return bool(self._fences.starts.numbers())

    def _check_moved(self, seen: int) -> None:
        """A fence is a file of the job's folder before any sink knows it. One that only a sink knows is that of another folder.
        Manifests name fences, too: those of files that were removed.
        """
        known = self._fences.highest()
        if seen > known:
            known = max([known, *(one.manifest.fence for one in self._store.stored() if one.manifest is not None)])
        if seen > known and not self._take_over:
            raise Refused(
                "SW-ROOT-MOVED",
                f"a sink was written with fence {seen}, but {self._store.folder} knows none above {known}: the "
                "job goes on in another root, to which it was moved; or this folder was brought back from a copy",
                "run it with the --root that it was moved to; or, if it is to go on here, start with --take-over: the other one "
                "then gets nothing committed",
            )
