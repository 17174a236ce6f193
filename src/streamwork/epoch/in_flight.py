"""The epochs of a driver that are planned and not prepared: steps 1 and 2, and what happens instead of 4."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from streamwork.epoch.assigning import Assigner
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.fences import Fences
from streamwork.epoch.host import Host
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.participant import Participant, inform
from streamwork.epoch.phases import Phase
from streamwork.epoch.planner import Planner
from streamwork.epoch.slices import by_report
from streamwork.epoch.timings import Timings
from streamwork.job import Layout
from streamwork.state import FileChains
from streamwork.world import Clock


class InFlight:
    def __init__(
        self,
        layout: Layout,
        host: Host,
        clock: Clock,
        fences: Fences,
        planner: Planner,
        assigner: Assigner,
        participants: Sequence[Participant],
        tell: Callable[[Phase, int], None],
    ) -> None:
        self.tip: Manifest
        """What the next epoch builds on: the newest completed checkpoint, or its child that is prepared."""
        self.chains: FileChains
        """The state files of the tip, without those that are damaged."""
        self._layout = layout
        self._host = host
        self._clock = clock
        self._fences = fences
        self._planner = planner
        self._assigner = assigner
        self._participants = participants
        self._tell = tell
        self._epochs: list[Epoch] = []

    def __len__(self) -> int:
        return len(self._epochs)

    def __iter__(self) -> Iterator[Epoch]:
        """The oldest first."""
        return iter(self._epochs)

    @property
    def oldest(self) -> Epoch:
        """The epoch that is prepared next. There must be one."""
        return self._epochs[0]

    def build_on(self, tip: Manifest, chains: FileChains) -> None:
        self.tip, self.chains = tip, chains
        if self._epochs:
            self._epochs[0].begin_at(tip.positions)

    def remove(self, epoch: Epoch) -> None:
        """The epoch is prepared or idle."""
        self._epochs.remove(epoch)

    def plan(self, depth: int) -> None:
        """1 and 2, until so many epochs are in flight or there is nothing to plan."""
        while len(self._epochs) < depth:
            before = self._epochs[-1].plan if self._epochs else None
            timings = Timings(self._clock)
            # Where a parent ends that is read by report is not known yet.
            continues = before is not None and bool(by_report(self._layout.graph, before))
            if before is None:
                plan = self._planner.plan(self.tip.positions, self.tip.epoch, timings.begin)
            elif continues:
                plan = self._planner.plan_behind(before, timings.begin)
            else:
                plan = self._planner.plan(before.end, before.epoch, timings.begin)
            if plan is None:
                return
            timings.lap(Phase.PLAN)
            # A driver that took the job before this plan does not know of it.
            if not self._layout.graph.promise.exactly_once:
                self._fences.check(plan.fence)
            self._tell(Phase.PLAN, plan.epoch)
            epoch = Epoch(plan, timings, self._planner.partitions, continues)
            self._epochs.append(epoch)
            self._submit(epoch)

    def _submit(self, epoch: Epoch) -> None:
        """2. The host computes epochs in the order of their numbers."""
        inform(self._participants, epoch)
        epoch.compute(self._assigner.assign(epoch, self.tip, self.chains))
        self._host.submit(self._layout, epoch.assignments)

    def repeat(self, epoch: Epoch) -> None:
        """2 again, for the oldest epoch: its attempts do not agree. Epochs that were built on it are discarded."""
        self._discard(self._epochs[1:])
        epoch.repeat()
        self._submit(epoch)

    def abandon(self) -> None:
        """Instead of 4, for the oldest epoch. Epochs that were built on it are discarded. The next one starts from the same
        parent; under at-most-once behind the abandoned one, since some of it may have been written.
        """
        epoch, *later = self._epochs
        self._epochs.remove(epoch)
        epoch.abandon(self._host.wasted())
        inform(self._participants, epoch)
        self._discard(later)
        self._tell(Phase.ABANDON, epoch.number)

    def _discard(self, epochs: Sequence[Epoch]) -> None:
        for epoch in epochs:
            self._epochs.remove(epoch)
            epoch.discard()
            inform(self._participants, epoch)
