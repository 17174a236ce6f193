"""The assignments of an epoch: what each instance of each chain is to compute."""

from __future__ import annotations

from pathlib import Path

from streamwork.engine import Assignment
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.planner import Planner
from streamwork.epoch.slices import extents, floor_of, idleness, partition_watermarks
from streamwork.job import Layout, Settings
from streamwork.state import FileChains


class Assigner:
    def __init__(
        self, layout: Layout, settings: Settings, folder: Path, uid: str, planner: Planner, continuous: bool = False
    ) -> None:
        """`folder` is that of the job. Instances of a `continuous` host stop where a run that catches up ends."""
        self._continuous = continuous
        self._graph = layout.graph
        self._layout = layout
        self._settings = settings
        self._folder = folder
        self._uid = uid
        self._planner = planner

    def assign(self, epoch: Epoch, parent: Manifest, chains: FileChains) -> list[Assignment]:
        """The epoch begins with the watermarks of `parent` and with the state in `chains`."""
        graph, plan, brought, parts = self._graph, epoch.plan, epoch.brought, epoch.partitions
        goals = self._planner.goal_of if self._continuous else lambda source: {}
        retried = tuple(one.event_id for one in brought.again)
        return [
            Assignment(
                chain=number,
                instance=instance,
                uid=self._uid,
                folder=str(self._folder),
                groups=self._layout.groups,
                epoch=plan.epoch,
                fence=plan.fence,
                extents=(
                    mine := extents(
                        graph, parts, chain.nodes, instance, plan, self._planner.unasked, goals, self._planner.most
                    )
                ),
                marks={} if graph.promise.exactly_once else self._planner.identities.marks(mine),
                watermarks=partition_watermarks(graph, parts, chain.nodes, instance, parent.watermarks),
                idle=idleness(graph, parts, chain.nodes, instance, parent.idle or {}),
                floor=floor_of(graph, parts, chain.nodes, instance, parent.idle or {}, parent.floors or {}),
                ticks=plan.ticks,
                states={name: stored[str(instance)] for name, stored in chains.items() if name in chain.nodes},
                replays=brought.share(chain.nodes, instance),
                lanes=brought.lanes,
                retried=retried,
                parent=parent.reached_by if graph.promise.at_most_once else None,
                asking=self._settings.checkpoint_every,
                continues=epoch.continues,
                max_attempts=self._settings.max_attempts,
                memory=self._settings.state_memory // max(1, sum(n.parallelism for n in graph.stateful)),
            )
            for number, chain in enumerate(self._layout.chains)
            for instance in range(chain.parallelism)
        ]
