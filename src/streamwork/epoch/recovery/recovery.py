"""Recovery: what a start does before the first source is read. `epoch.recovery.restore_point` chooses the manifest to build on.

    1  look      does the job fit what is stored? Nothing is written before this
    2  wait      is another driver at work? (`epoch.fences`)
    3  claim     take the next fence
    4  register  write it into every sink: no older driver gets anything in from here on
    5  read      make durable what is there, read manifests and ledgers, choose. A driver that finds a fence above its own stops
    6  commit    offer staged outputs to sinks that are behind; rebase those that have the rows from a manifest that is lost
    7  complete  a prepared manifest that was chosen; then check the fence, and settle what sinks refused (`epoch.effects`)
    8  ready     record where this fence starts: manifests of lower fences beyond it count for nothing
    9  prune     set aside what cannot be used, remove what nobody names and temporary files whose writer is dead

What a crash leaves, and what the next start does with it:

    after 3, 4      a fence without a start: the next one is higher
    during 6        some sinks have the rows; the same is offered again, and their ledgers say that it is there
    after 7         the manifest is completed: chosen again, nothing to offer
    after 8         likewise; what was not set aside yet counts for nothing, because of 8
    during 9        the rest is done by the next start
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from streamwork.components import Position
from streamwork.components.commit_rule import lost
from streamwork.components.position import CLOCK, INBOX
from streamwork.engine.instance import row_format
from streamwork.epoch.effects import Effects
from streamwork.epoch.fences import Drop, Fences
from streamwork.epoch.identities import check_sources
from streamwork.epoch.manifest import Manifest, Plan
from streamwork.epoch.phases import Phase
from streamwork.epoch.recovery.catch_up import Route, route
from streamwork.epoch.recovery.restore_point import Catalogue, Choice, choose, none_good
from streamwork.epoch.recovery.verify import Verifier
from streamwork.epoch.sinks import Sinks
from streamwork.epoch.store import Identity, Store, Stored
from streamwork.errors import Refused
from streamwork.job import Graph, Node, NodeKind
from streamwork.job.semantics import Promise
from streamwork.state import StateFiles
from streamwork.state.files import check_schema
from streamwork.world import FileRef

NOTHING = Drop()
Chains = dict[str, dict[str, tuple[FileRef, ...]]]


@dataclass(frozen=True)
class Recovered:
    """Where a driver goes on from."""

    at: Manifest
    chains: Chains  # its state files, without those that are damaged
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
        """`drop` names components whose state is not to be used any more."""
        self._graph = graph
        self._drop = drop
        self._store = store
        self._fences = fences
        self._sinks = sinks
        self._accept_divergence = accept_divergence
        self._change_semantics = change_semantics
        self._refill = refill
        self._effects = Effects(store)
        self._verifier = Verifier(store, self._dropped)
        self._outdated: dict[
            str, Position
        ] = {}  # sinks whose rows date from before the job stopped committing, and where they are

    def look(self, identity: Identity) -> None:
        """1. Refuse a job that cannot go on from what is stored."""
        shelf = self._shelf(identity)
        found = next((m for m in shelf.newest_first if not shelf.problem(m)), None)
        if found is None:
            raise none_good([*shelf.unreadable, *((m.epoch, shelf.problem(m)) for m in shelf.newest_first)])
        held = set(found.components) - self._fences.dropped_after(found.fence)
        if self._drop.components and self._fences.has_dropped(self._drop):
            self._drop = NOTHING
        if unknown := sorted(set(self._drop.components) - held):
            raise not_held(unknown, held)
        check_fit(self._store, self._graph, found, self._chains(found), identity.groups)
        check_sources(self._graph, self._store.sources())
        before = self._fences.promise()
        if before is not None and before != self._graph.promise and not self._change_semantics:
            raise _changed(before, self._graph.promise)

    def look_at_sinks(self, identity: Identity) -> None:
        """Before anything is made: refuse a sink that has lost its ledger row. `read` asks again, when no older driver writes."""
        shelf = self._shelf(identity)
        for name, row in self._sinks.ledgers(identity.uid).items():
            if shelf.has_lost(name, row) and name not in self._refill:
                raise lost(name, max((m.epoch for m in shelf.newest_first), default=0))

    def read(self, identity: Identity, fence: int) -> Choice:
        """5. What to build on."""
        self._store.settle()
        self._verifier = Verifier(self._store, self._dropped)  # look again: much may have happened while we waited
        self._known = self._shelf(identity)
        before = self._fences.promise() or self._graph.promise
        # Where the last driver did not commit, no ledger says anything of what it did.
        self._ledgers = self._sinks.ledgers(identity.uid) if before.exactly_once else {}
        found = choose(self._known, self._ledgers, self._not_replayable)
        if not before.exactly_once and self._graph.promise.exactly_once:
            rows = self._sinks.ledgers(identity.uid).items()
            self._outdated = {name: row.position for name, row in rows if row is not None and row.position is not None}
        self._fences.check(fence)
        check_fit(self._store, self._graph, found.at, self._chains(found.at), identity.groups)
        return found

    def finish(self, choice: Choice, fence: int, tell: Callable[[Phase, Manifest], None]) -> Recovered:
        """6 to 8."""
        deterministic = self._graph.deterministic or bool(choice.ahead) or bool(choice.rebases)
        empty = set(choice.refills)
        for name, manifest in choice.offers:
            parent = next((m for m in self._known.lineage(manifest) if m.epoch != manifest.epoch), None)
            self._sinks.offer(name, manifest, parent, deterministic, first=False, refill=name in empty)
            empty.discard(name)
            tell(Phase.COMMIT, manifest)
        for name in choice.rebases:
            self._sinks.rebase(name, choice.at)
            tell(Phase.REBASE, choice.at)
        for name, position in self._outdated.items():
            self._sinks.rebase(name, choice.at, position)
            tell(Phase.REBASE, choice.at)
        torn = choice.at.epoch in {s.epoch for s in self._stored if s.completed and s.problem}
        if torn:
            self._store.mend_completed(fence, choice.at)
        elif not choice.completed or choice.at.epoch not in self._store.completed():
            self._store.write_completed(choice.at)
            tell(Phase.COMPLETE, choice.at)
        self._fences.check(fence)
        self._effects.settle_refused(
            self._sinks.ledgers(choice.at.uid), self._ends(), max(self._fences.starts(), default=0)
        )
        if self._drop.components:
            self._fences.write_dropped(self._drop)
        self._fences.write_start(choice.at.epoch, choice.at.sha256, self._graph.promise, self._sinks.registered)
        tell(Phase.READY, choice.at)
        way = route(choice.at, [position for _, position in choice.ahead], self._plans()) if choice.ahead else Route()
        line = self._known.line(choice.at)
        return Recovered(choice.at, self._chains(choice.at), line, way, not choice.completed, self._story(choice, torn))

    def set_aside(self, recovered: Recovered, fence: int) -> None:
        """9. Quarantine what cannot be used: manifests that the chosen one was not built on, with their files and published
        letters, and damaged files.
        """
        self._fences.check(fence)
        named = {path for manifest in recovered.line for path in manifest.files}
        in_line = {manifest.sha256 for manifest in recovered.line}
        for stored in self._stored:
            if stored.manifest is None or stored.manifest.sha256 not in in_line:
                self._store.quarantine_epoch(fence, stored.epoch)
                for path in stored.manifest.files if stored.manifest is not None else ():
                    if path not in named:
                        self._store.quarantine(fence, path)
        self._effects.set_aside(fence, recovered.at.epoch)
        sound = {ref.path for chains in recovered.chains.values() for chain in chains.values() for ref in chain}
        for problem in self._verifier.problems(recovered.at):
            if problem.path not in sound:
                self._store.quarantine(fence, problem.path)

    def plans_beyond(self, at: Manifest) -> list[Plan]:
        """The plans of epochs behind `at`, whatever came of them. One that cannot be read is refused: what it planned may have
        been written.
        """
        return [self._store.plan(number) for number in self._store.plans() if number > at.epoch]

    def planned_beyond(self, plans: Sequence[Plan]) -> Position:
        """How far these epochs were planned."""
        found = Position()
        for plan in plans:
            found = found.furthest(plan.end)
        return found

    # ---- what is known --------------------------------------------------------------------------------------------

    def _shelf(self, identity: Identity) -> Catalogue:
        self._stored = [_of_this_job(stored, identity) for stored in self._store.stored()]
        return Catalogue(
            self._stored,
            self._fences.starts(),
            self._verifier.state_problem,
            self._verifier.staged_problem,
            self._fences.registered(),
            self._refill,
        )

    def _chains(self, manifest: Manifest) -> Chains:
        return {
            name: {number: tuple(self._verifier.sound_chain(chain) or ()) for number, chain in instances.items()}
            for name, instances in manifest.components.items()
            if name not in self._dropped(manifest)
        }

    def _ends(self) -> dict[int, Position]:
        """Epoch -> where it ends, as far as its manifest or its plan can be read."""
        planned = {plan.epoch: plan.end for plan in self._plans()}
        return {**planned, **{one.epoch: one.manifest.positions for one in self._stored if one.manifest is not None}}

    def _dropped(self, manifest: Manifest) -> frozenset[str]:
        """Components whose state in a manifest does not count: a later start has dropped it, or this one does."""
        return self._fences.dropped_after(manifest.fence) | set(self._drop.components)

    def _plans(self) -> list[Plan]:
        """The plans that can be read."""
        found = []
        for number in self._store.plans():
            try:
                found.append(self._store.plan(number))
            except Refused:
                continue
        return found

    def _not_replayable(self, at: Manifest, position: Position) -> str:
        """Why what lies between cannot be computed again with the same result."""
        if self._accept_divergence:
            return ""
        for node in self._graph.nodes:
            if not getattr(node.component, "deterministic", True):
                return f"{node.id} is not deterministic"
        if at.positions == position:
            return ""
        if self._graph.polled:
            return f"source {self._graph.polled[0].id} has no offsets to read the same events by"
        if self._graph.reads_clock and not route(at, [position], self._plans()).legs:
            return "the plans that hold the ticks of its clock are gone"
        return ""

    def _story(self, choice: Choice, torn: bool) -> tuple[str, ...]:
        """What was found and done, in plain lines."""
        lines = [f"checkpoint {epoch} cannot be used: {why}" for epoch, why in choice.passed_over]
        if not choice.completed:
            lines.append(f"checkpoint {choice.at.epoch} was prepared: it is rolled forward, nothing is computed again")
        if torn:
            lines.append(f"a copy of checkpoint {choice.at.epoch} was damaged; its twin stands in")
        damaged = self._verifier.problems(choice.at)
        lines += [f"{problem.what}; checkpoint {choice.at.epoch} can do without it" for problem in damaged]
        if choice.completed:
            behind = list(dict.fromkeys(name for name, _ in choice.offers if name not in choice.refills))
            lines += [f"sink {name} was behind and has been given the rows that it lacked" for name in behind]
        for name in choice.refills:
            first = next(manifest for sink, manifest in choice.offers if sink == name)
            whole = "that is all" if first.sinks[name].first else "rows of earlier checkpoints are not in it"
            lines.append(f"sink {name} was lost and has been given its rows from checkpoint {first.epoch} on; {whole}")
        lines += [
            f"fell back to checkpoint {choice.at.epoch}; sink {name} is ahead of it, at {position}: up to there events are "
            "computed again, and not written again"
            for name, position in choice.ahead
        ]
        for name in sorted(set(self._drop.components) & choice.at.components.keys()):
            goes_on = "; it begins with empty state" if name in {n.id for n in self._graph.stateful} else ""
            lines.append(f"the state of {name} in checkpoint {choice.at.epoch} is dropped{goes_on}")
        lines += [f"fell back to checkpoint {choice.at.epoch}, where sink {name} is, too" for name in choice.rebases]
        return tuple(lines)


def _changed(before: Promise, now: Promise) -> Refused:
    return Refused(
        "SW-SEMANTICS-CHANGED",
        f"this job ran {before} until now, and is to run {now}: what its targets hold was written under the old promise",
        f"if that is meant, start once with --change-semantics; else run it with {before.options}",
    )


def not_held(unknown: Sequence[str], held: Collection[str]) -> Refused:
    """`--drop-state` names something that has no state."""
    have = f"there is state of {', '.join(sorted(held))}" if held else "there is no state yet"
    return Refused(
        "SW-STATE-UNKNOWN",
        f"--drop-state {unknown[0]}: the newest checkpoint holds no state of {unknown[0]!r}; {have}",
        "leave --drop-state out if it was dropped before; else correct the id",
    )


def _of_this_job(stored: Stored, identity: Identity) -> Stored:
    if stored.manifest is not None and stored.manifest.uid != identity.uid:
        return replace(stored, manifest=None, problem=f"it belongs to another job (uid {stored.manifest.uid})")
    return stored


def check_fit(store: Store, graph: Graph, manifest: Manifest, chains: Chains, groups: int) -> None:
    """Refuse a job that cannot go on from `manifest`: with other sources, records, keys or instances than it was left with."""
    sources = {node.id for node in graph.sources}
    for name in manifest.positions:
        source = name.partition("/")[0]
        if name not in (CLOCK, INBOX) and source not in sources:
            raise Refused(
                "SW-SOURCE-ORPHAN",
                f"checkpoint {manifest.epoch} is at {manifest.positions[name]:,} in source {source!r}, which the job does "
                "not have any more; under another id it would be read again from its start",
                f"give the source the id {source!r} again, or run the new job in another --root, with new targets",
            )
    formats = {node.id: row_format(graph, node, groups) for node in graph.stateful}
    files = StateFiles(store.disk, store.folder)
    for component, instances in chains.items():
        if component not in formats:
            raise Refused(
                "SW-STATE-ORPHAN",
                f"checkpoint {manifest.epoch} holds state of {component!r}, which the job does not have any more",
                f"give the component that goes on with it the id {component!r}; or, if its state is not needed any more, start "
                f"once with --drop-state {component}",
            )
        wanted = {str(number) for number in range(graph[component].parallelism)}
        if instances.keys() != wanted:
            raise Refused(
                "SW-STATE-PARALLELISM",
                f"the state of {component!r} is spread over instances {', '.join(instances)}, but its parallelism is now "
                f"{len(wanted)}",
                f"run it with parallelism={len(instances)}"
                + _how(graph[component])
                + f"; or begin with empty state: start once with --drop-state {component}",
            )
        for ref in (chain[-1] for chain in instances.values() if chain):
            check_schema(formats[component], ref, files.schema(ref))


def _how(node: Node) -> str:
    """What else another parallelism of a component needs, so that it is not refused for the sake of order."""
    if node.kind is NodeKind.SOURCE or node.is_routed:
        return ""
    return ", and what it reads too, or with the grouping that it had"
