"""Recovery: what a start does before the first source is read.

`catalogue` lists what can be restored, `restore_point` chooses, `fit` compares the job with it; this module executes.

    1  check     does the job fit what is stored? Nothing is written before this
    2  wait      is another driver at work? (`epoch.fences`)
    3  claim     take the next fence
    4  register  write it into every sink: no older driver can commit from here on
    5  read      sync the folder, read manifests and ledgers, choose. A driver that finds a fence above its own stops
    6  commit    offer staged outputs to sinks that are behind; rebase those that have the rows from a manifest that is lost
    7  complete  a prepared manifest that was chosen; then check the fence, and publish what sinks refused (`epoch.effects`).
                 7c: where instances cannot read its state as it is, rewrite it (`epoch.recovery.rewriting`)
    8  ready     record where this fence starts: manifests of lower fences beyond it count for nothing
    9  prune     set aside what cannot be used, remove files that no manifest names, and temporary files whose writer is dead

What a crash leaves, and what the next start does with it:

    after 3, 4      a fence without a start: the next one is higher
    during 6        some sinks have the rows; the same is offered again, and their ledgers say that it is there
    after 7         the manifest is completed: chosen again, nothing to offer. In 7c: see there
    after 8         likewise; what was not set aside yet counts for nothing, because of 8
    during 9        the rest is done by the next start
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from streamwork.components import Position
from streamwork.components.commit_rule import lost
from streamwork.epoch.effects import Effects
from streamwork.epoch.fences import Fences
from streamwork.epoch.identities import changed_inputs
from streamwork.epoch.manifest import Manifest, Plan
from streamwork.epoch.phases import Phase
from streamwork.epoch.recovery.catalogue import Catalogue
from streamwork.epoch.recovery.catch_up import Route, not_replayable, route
from streamwork.epoch.recovery.fit import Unfit, fit
from streamwork.epoch.recovery.restore_point import RestorePoint, choose, none_good
from streamwork.epoch.recovery.rewriting import Rewriting
from streamwork.epoch.recovery.sink_paths import SinkPaths
from streamwork.epoch.recovery.verify import Verifier
from streamwork.epoch.sinks import Sinks
from streamwork.epoch.slices import by_report
from streamwork.epoch.start_records import Drop, fields_among
from streamwork.epoch.store import Identity, Store, Stored
from streamwork.errors import Refused
from streamwork.job import Graph
from streamwork.state import Change, FileChains, RestorePlan, StateFiles

NOTHING = Drop()


@dataclass(frozen=True)
class Recovered:
    """Where a driver goes on from."""

    at: Manifest
    base: Manifest  # what it was rewritten from; else it is the same
    plan: RestorePlan  # its state files, in place; without those that are damaged
    line: list[Manifest]  # it and the ancestors that are kept, newest first
    route: Route
    rolled_forward: bool
    story: tuple[str, ...]


class Recovery:
    """The parts of a start that concern what is stored. The driver calls them in the order of the steps above."""

    def __init__(
        self,
        graph: Graph,
        store: Store,
        fences: Fences,
        sinks: Sinks,
        accept_divergence: bool,
        change_semantics: bool = False,
        refill: Collection[str] = (),
        drop: Drop = NOTHING,
    ) -> None:
        """`drop` names components whose state is no longer used; `refill` sinks that may be filled again."""
        self._graph = graph
        self._drop = drop
        self._store = store
        self._fences = fences
        self._sinks = sinks
        self._accept_divergence = accept_divergence
        self._change_semantics = change_semantics
        self._refill = refill
        self._effects = Effects(graph, store)
        self._rewriting = Rewriting(graph, store, fences, sinks)
        self._files = StateFiles(store.disk, store.folder)
        self._verifier = Verifier(store, self._dropped)
        # sinks whose rows are older than the change to committing
        self._outdated: list[str] = []

    def check_job(self, identity: Identity) -> None:
        """1. Refuse a job that cannot go on from what is stored."""
        catalogue = self._read_catalogue(identity)
        newest = catalogue.newest
        if newest is None:
            raise none_good(catalogue.problems)
        self._sinks.known_as(newest)
        held = set(newest.components) - self._fences.starts.dropped_after(newest.fence)
        if self._drop.components and self._fences.starts.has_dropped(self._drop):
            self._drop = NOTHING
        wanted = {*self._drop.whole, *self._drop.fields}
        found = fit(
            self._graph,
            identity.groups,
            newest,
            self._chains(newest),
            self._files.schema,
            folder=self._store.folder,
            unknown_drops=sorted(wanted - held),
            held=held,
            drop_fields=self._dropped_fields(newest),
            requested=self._drop.fields,
            changed_inputs=lambda: changed_inputs(self._graph, self._store.sources()),
            promise=None if self._change_semantics else self._fences.starts.promise(),
        )
        if isinstance(found, Unfit):
            raise found.refused

    def check_sinks(self, identity: Identity) -> None:
        """Refuse a sink that has lost its ledger row, before anything is created. `read` checks again, when no older driver
        writes.
        """
        catalogue = self._read_catalogue(identity)
        paths = self._paths(catalogue)
        for name, row in self._sinks.ledgers(identity.uid).items():
            if paths.has_lost(name, row) and name not in self._refill:
                raise lost(name, max((m.epoch for m in catalogue.newest_first), default=0))

    def read(self, identity: Identity, fence: int) -> RestorePoint:
        """5. The manifest to build on."""
        self._store.sync_names()
        self._verifier = Verifier(self._store, self._dropped)  # files may have changed during the wait
        self._catalogue = self._read_catalogue(identity)
        before = self._fences.starts.promise() or self._graph.promise
        # Where the last driver did not commit, no ledger says anything about its epochs.
        self._ledgers = self._sinks.ledgers(identity.uid) if before.exactly_once else {}
        point = choose(self._catalogue, self._paths(self._catalogue), self._ledgers, self._not_replayable)
        if not before.exactly_once and self._graph.promise.exactly_once:
            rows = self._sinks.ledgers(identity.uid).items()
            self._outdated = [name for name, row in rows if row is not None and row.position is not None]
        self._fences.check(fence)
        chains, folder = self._chains(point.at), self._store.folder
        drops = self._dropped_fields(point.at)
        plan = fit(self._graph, identity.groups, point.at, chains, self._files.schema, folder=folder, drop_fields=drops)
        if isinstance(plan, Unfit):
            raise plan.refused
        self._plan, self._groups = plan, identity.groups
        return point

    def finish(self, point: RestorePoint, fence: int, report: Callable[[Phase, Manifest], None]) -> Recovered:
        """6 to 8."""
        deterministic = self._graph.deterministic or bool(point.ahead) or bool(point.rebases)
        empty = set(point.refills)
        for name, manifest in point.offers:
            self._sinks.offer(
                name, manifest, self._catalogue.parent(manifest), deterministic, first=False, refill=name in empty
            )
            empty.discard(name)
            report(Phase.COMMIT, manifest)
        for name in point.rebases:
            self._sinks.rebase(name, point.at)
            report(Phase.REBASE, point.at)
        for name in self._outdated:
            self._sinks.rebase(name, point.at)
            report(Phase.REBASE, point.at)
        torn = point.at.epoch in {s.epoch for s in self._stored if s.completed and s.problem}
        if torn:
            self._store.replace_completed(fence, point.at)
        elif not point.completed or point.at.epoch not in self._store.completed():
            self._store.write_completed(point.at)
            report(Phase.COMPLETE, point.at)
        self._fences.check(fence)
        self._effects.publish_refused_at_start(
            self._sinks.ledgers(point.at.uid), self._ends(), max(self._fences.starts.numbers(), default=0)
        )
        at, plan, line = point.at, self._plan, self._catalogue.line(point.at)
        story = self._story(point, torn)
        if at.reached_by:
            added = [name for name, change in plan.changes.items() if change is Change.ADDED]
            story += tuple(f"{name} is new: it begins with empty state" for name in added)
        if not plan.is_in_place or at.as_written is not at:  # 7c
            self._effects.publish(at)
            ahead = frozenset(name for name, _ in point.ahead)
            story += _renamed(at)
            story += () if plan.is_in_place else (f"the state is rewritten: {plan.summary}",)
            at, plan = self._rewriting.run(at, plan, self._groups, fence, ahead, report)
            line = [at, *line]
        if self._drop.components:
            self._fences.starts.write_dropped(fence, self._drop)
        starts = self._fences.starts
        starts.write(fence, at.epoch, at.sha256, self._graph.promise, self._sinks.registered, self._graph.params)
        report(Phase.READY, at)
        way = route(at, [position for _, position in point.ahead], self._by_plan()) if point.ahead else Route()
        return Recovered(at, point.at, plan, line, way, not point.completed, story)

    def set_aside(self, recovered: Recovered, fence: int) -> None:
        """9. Quarantine what cannot be used: manifests that the chosen one was not built on, with their files and published
        letters, and damaged files.
        """
        named = {path for manifest in recovered.line for path in manifest.files}
        in_line = {manifest.sha256 for manifest in recovered.line}
        unused = [one for one in self._stored if one.manifest is None or one.manifest.sha256 not in in_line]
        void = self._effects.void(recovered.at.reached_by, {stored.epoch for stored in unused})
        self._fences.check(fence)
        for stored in unused:
            self._store.quarantine_epoch(fence, stored.epoch)
            for path in stored.manifest.files if stored.manifest is not None else ():
                if path not in named:
                    self._store.quarantine(fence, path)
        self._effects.set_aside(fence, void)
        sound = {ref.path for chains in recovered.plan.chains.values() for chain in chains.values() for ref in chain}
        for problem in self._verifier.problems(recovered.base):
            if problem.path not in sound:
                self._store.quarantine(fence, problem.path)

    def plans_beyond(self, at: Manifest) -> list[Plan]:
        """The plans of epochs behind `at`, abandoned or not. Refuses a plan that cannot be read: its epoch may have written."""
        return [self._store.plan(number) for number in self._store.plans() if number > at.reached_by]

    def planned_beyond(self, plans: Sequence[Plan]) -> Position:
        """How far these epochs were planned."""
        found = Position()
        for plan in plans:
            found = found.furthest(plan.end)
        return found

    # ---- what is known --------------------------------------------------------------------------------------------

    def _read_catalogue(self, identity: Identity) -> Catalogue:
        self._stored = [_of_this_job(stored, identity) for stored in self._store.stored()]
        return Catalogue(self._stored, self._fences.starts.all(), self._verifier)

    def _paths(self, catalogue: Catalogue) -> SinkPaths:
        return SinkPaths(catalogue, self._fences.starts.registered(), self._refill)

    def _chains(self, manifest: Manifest) -> FileChains:
        return {
            name: {number: tuple(self._verifier.sound_chain(chain) or ()) for number, chain in instances.items()}
            for name, instances in manifest.components.items()
            if name not in self._dropped(manifest)
        }

    def _ends(self) -> dict[int, Position]:
        """Epoch -> where it ended, of every manifest that can be read."""
        return {one.epoch: one.manifest.positions for one in self._stored if one.manifest is not None}

    def _dropped(self, manifest: Manifest) -> frozenset[str]:
        """Components whose state in a manifest does not count: a later start has dropped it, or this one does."""
        return self._fences.starts.dropped_after(manifest.fence) | set(self._drop.components)

    def _dropped_fields(self, manifest: Manifest) -> dict[str, frozenset[str]]:
        """Fields whose values in a manifest do not count, by component."""
        return fields_among(self._dropped(manifest))

    def _by_plan(self) -> list[Plan]:
        """The plans that can be read and that name every end: those whose epochs can be computed again."""
        found = []
        for number in self._store.plans():
            with suppress(Refused):
                plan = self._store.plan(number)
                found += [] if by_report(self._graph, plan) else [plan]
        return found

    def _not_replayable(self, at: Manifest, position: Position) -> str:
        return "" if self._accept_divergence else not_replayable(self._graph, at, position, self._by_plan())

    def _story(self, point: RestorePoint, torn: bool) -> tuple[str, ...]:
        """What was found and done, as lines of text."""
        lines = [f"checkpoint {epoch} cannot be used: {why}" for epoch, why in point.passed_over]
        if not point.completed and point.at.is_computed:
            lines.append(f"checkpoint {point.at.epoch} was prepared: it is rolled forward, nothing is computed again")
        if torn:
            lines.append(f"a copy of checkpoint {point.at.epoch} was damaged; its twin stands in")
        damaged = self._verifier.problems(point.at)
        lines += [f"{problem.what}; checkpoint {point.at.epoch} can do without it" for problem in damaged]
        if point.completed:
            behind = list(dict.fromkeys(name for name, _ in point.offers if name not in point.refills))
            lines += [f"sink {name} was behind and has been given the rows that it lacked" for name in behind]
        for name in point.refills:
            first = next(manifest for sink, manifest in point.offers if sink == name)
            whole = "that is all" if first.sinks[name].first else "rows of earlier checkpoints are not in it"
            lines.append(f"sink {name} was lost and has been given its rows from checkpoint {first.epoch} on; {whole}")
        lines += [
            f"fell back to checkpoint {point.at.epoch}; sink {name} is ahead of it, at {position}: up to there events are "
            "computed again, and not written again"
            for name, position in point.ahead
        ]
        for name in sorted(set(self._drop.whole) & point.at.components.keys()):
            goes_on = "; it begins with empty state" if name in {n.id for n in self._graph.stateful} else ""
            lines.append(f"the state of {name} in checkpoint {point.at.epoch} is dropped{goes_on}")
        lines += [f"fell back to checkpoint {point.at.epoch}, where sink {name} is, too" for name in point.rebases]
        return tuple(lines)


def _renamed(at: Manifest) -> tuple[str, ...]:
    """What has another name now, as a line of text."""
    written = at.as_written
    before = {*written.positions.sources, *written.components, *written.sinks}
    now = {*at.positions.sources, *at.components, *at.sinks}
    gone, new = sorted(before - now), sorted(now - before)
    return (f"{', '.join(gone)} is renamed to {', '.join(new)}",) if gone or new else ()


def _of_this_job(stored: Stored, identity: Identity) -> Stored:
    if stored.manifest is not None and stored.manifest.uid != identity.uid:
        return replace(stored, manifest=None, problem=f"it belongs to another job (uid {stored.manifest.uid})")
    return stored
