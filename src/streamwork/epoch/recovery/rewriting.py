"""Rewriting: a start whose restore plan is not in place rewrites the state, as one checkpoint, before it goes on.

Another parallelism, other columns, a savepoint's files: in each case the new checkpoint has the positions of the one that it is
built on, its base, and differs in the state alone. It is step 7c of a start (`epoch.recovery.recovery`): the base is completed,
every sink is at it or ahead of it, and its dead letters are published.

    1  write    new state files, under names with a new number and my fence; files that stay as they are keep their names
    2  prepare  the manifest: child of the base, same positions, its state files, nothing staged for any sink
    3  commit   each sink is offered it: no rows, its ledger row names the new manifest. A sink that is ahead of the base is not
                asked; it is ahead of the new one by the same input
    4  complete the same bytes under the final name

What a crash leaves, and what the next start does with it:

    during 1        files that no manifest names: removed. The base counts, with the old layout
    after 2         a prepared manifest with the new layout: rolled forward, as that of an epoch. If the job has yet another layout
                    by then, it is rewritten once more
    during 3        some ledgers name the new manifest, some its base: it is offered to all
    after 4         nothing to do

The base is kept like any other checkpoint, so a damaged file of the new one leads back to it, and the state is rewritten again.
What the job's author gives (`migrate`, `rescale`) is called in 1 only: if it raises, nothing of what was written counts.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from streamwork.delivery.counts import KINDS
from streamwork.engine.idleness import Idleness
from streamwork.engine.instance import row_format
from streamwork.epoch.fences import Fences
from streamwork.epoch.manifest import Manifest, SinkPart
from streamwork.epoch.phases import Phase
from streamwork.epoch.sinks import Sinks
from streamwork.epoch.store import Store
from streamwork.job import Graph
from streamwork.state import ComponentPlan, FileChains, RestorePlan, StateFiles
from streamwork.state.rewriter import StateRewriter

Report = Callable[[Phase, Manifest], None]


class Rewriting:
    def __init__(self, graph: Graph, store: Store, fences: Fences, sinks: Sinks) -> None:
        self._graph = graph
        self._store = store
        self._fences = fences
        self._sinks = sinks

    def run(
        self, base: Manifest, plan: RestorePlan, groups: int, fence: int, ahead: frozenset[str], report: Report
    ) -> tuple[Manifest, RestorePlan]:
        """The new checkpoint, and the plan to go on from it, which is in place. `ahead` are the sinks that have more than the
        base.
        """
        epoch = self._store.newest_number() + 1
        chains = self._write(plan, groups, epoch, fence)  # 1
        self._fences.check(fence)
        manifest = self._prepare(self._times(base, plan), base, chains, epoch, fence)  # 2
        report(Phase.PREPARE, manifest)
        for name in self._sinks.ids:  # 3
            if name in manifest.sinks and name not in ahead:
                self._sinks.offer(name, manifest, base, self._graph.deterministic)
                report(Phase.COMMIT, manifest)
        self._store.write_completed(manifest)  # 4
        report(Phase.COMPLETE, manifest)
        parts = {name: ComponentPlan.as_stored(plan.folder, instances) for name, instances in chains.items()}
        return manifest, RestorePlan(plan.folder, parts, plan.changes)

    def _write(self, plan: RestorePlan, groups: int, epoch: int, fence: int) -> FileChains:
        disk = self._store.disk
        stem = f"{fence}-rewritten"  # a start rewrites once, and no other has its fence
        rewriter = StateRewriter(disk, StateFiles(disk, self._store.folder), epoch, stem)
        return {
            name: part.chains
            if part.is_in_place(plan.folder)
            else rewriter.write(row_format(self._graph, self._graph[name], groups), part, self._graph[name].rescale)
            for name, part in plan.components.items()
        }

    def _times(self, base: Manifest, plan: RestorePlan) -> Manifest:
        """Watermarks stay with partitions. Those of a polled source are its instances: where their number changes, any may read
        on with the input of any other, so each begins with the watermark of the one that is furthest behind.
        """
        polled = {node.id: node for node in self._graph.polled}
        watermarks, idle = dict(base.watermarks), dict(base.idle or {})
        for name, part in plan.components.items():
            if name not in polled or not part.divides:
                continue
            before = [f"{name}/{instance}" for instance in range(part.stored)]
            known = [watermarks.pop(one) for one in before if one in watermarks]
            rested = [one for one in (idle.pop(one, None) for one in before) if one is not None]
            floor = min((one.floor for one in rested if one.floor is not None), default=None)
            active = max((one.active for one in rested), default=None)
            for instance in part.pieces:
                if len(known) == len(before):
                    watermarks[f"{name}/{instance}"] = min(known)
                if active is not None:
                    idle[f"{name}/{instance}"] = Idleness(active, floor, False)
        return msgspec.structs.replace(base, watermarks=watermarks, idle=idle or msgspec.UNSET)

    def _prepare(self, times: Manifest, base: Manifest, chains: FileChains, epoch: int, fence: int) -> Manifest:
        """A number that is taken is spent. If a driver with a higher fence has taken it, this one has lost the job."""
        graph = self._graph
        while True:
            manifest = Manifest(
                epoch=epoch,
                parent=base.epoch,
                parent_sha256=base.sha256,
                fence=fence,
                uid=base.uid,
                positions=base.positions,
                components={name: dict(instances) for name, instances in chains.items()},
                sinks={n.id: SinkPart() for n in graph.sinks if graph.is_staged(n) and n.id in base.sinks},
                counters={node.id: dict.fromkeys(KINDS, 0) for node in graph.nodes},
                fingerprint=graph.fingerprint,
                watermarks=times.watermarks,
                idle=times.idle,
                floors=base.floors,
                failed=base.failed,
                taken=base.taken,
                basis=base.reached_by,
                ledgers=self._sinks.known_ids,
            )
            try:
                self._store.write_prepared(manifest)
            except FileExistsError:
                self._fences.check(fence)
                epoch += 1
                continue
            return manifest
