"""Restoring: a start by choice from a savepoint or an older checkpoint. It is a life of its own, before that of the driver:

    1  check     origin, job, inputs and ledgers. Nothing is written before this is over
    2  create    the job's folder, if there is none; its `job.json` names the origin
    3  claim     a fence above all that any ledger has seen, and that of the origin: then no file of it is newer than mine
    4  register  the fence in every sink; then the ledgers are checked again, which no older driver changes now
    5  copy      state, waiting events and the inbox into the job's folder, under names with a new number and my fence
    6  prepare   the manifest: a child of that of the origin, with its positions (or those that `--input` gives), and no output
    7  rewind    sinks that are ahead, if that was confirmed: their rows behind the origin go, their ledgers name it again
    8  record    F.start.json: manifests of lower fences beyond the origin do not count

Then a driver starts as after any crash, finds the prepared manifest, and rolls it forward: every ledger stands at the parent.

What a crash leaves, and what the next start does with it, if it is an ordinary one:

    after 2, 3, 4, 5   of a new folder: it is refused, since the folder names an origin and has no start; restore again. Else
                       there are a fence without a start and files that no manifest names: the job goes on where it was
    after 6            every ledger stands at the origin: the manifest is rolled forward. Else (7 is still to come) it is passed
                       over, and the job goes on where it was
    during 7           some sinks are at the origin, others ahead: those at the origin are offered again what they have lost, as far
                       as the staged outputs are kept; else the start is refused. Restoring again completes 7 in any case
    after 8            as after 6
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from streamwork.components import LedgerRow, Position
from streamwork.delivery.counts import KINDS
from streamwork.delivery.inbox import INBOX_FILE, WAITING
from streamwork.epoch.fences import Fences
from streamwork.epoch.identities import changed_inputs
from streamwork.epoch.manifest import Manifest, Plan, SinkPart
from streamwork.epoch.names import Names
from streamwork.epoch.recovery.fit import Unfit, fit
from streamwork.epoch.savepoints.input import missing_input
from streamwork.epoch.savepoints.origin import Origin
from streamwork.epoch.sinks import Sinks
from streamwork.epoch.start_records import fields_among
from streamwork.epoch.store import Identity, Store
from streamwork.errors import Refused
from streamwork.job import Graph, Settings
from streamwork.state import StateFiles
from streamwork.state.chain import DELTA, SNAPSHOT
from streamwork.state.files import STATE_FILE
from streamwork.world import Clock, FileKind, FileRef, Processes

FORK = "let a job with targets of its own begin there, with `streamwork savepoint fork job.py NAME --as NEW`"


class Restored(msgspec.Struct, frozen=True):
    """What a restore did."""

    origin: str
    checkpoint: int  # the new one, which has what the origin had
    fence: int
    rewound: dict[str, int] = {}  # sink -> rows that were removed


@dataclass(frozen=True)
class Choices:
    """What a person chose and confirmed."""

    positions: Mapping[str, int] = field(default_factory=dict)  # source/partition -> offset, instead of the origin's
    drop_state: tuple[str, ...] = ()
    change_semantics: bool = False
    rewind_output: bool = False
    take_over: bool = False


class Restoring:
    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        store: Store,
        clock: Clock,
        processes: Processes,
        origin: Origin,
        choices: Choices,
        identity: Identity | None = None,
    ) -> None:
        """`identity` is that of a new job that begins with this state (a fork); else the job is the one of the origin."""
        names = Names.of(graph)
        store, origin = store.named(names), origin.named(names)
        self._graph = graph
        self._settings = settings
        self._store = store
        self._clock = clock
        self._origin = origin
        self._choices = choices
        self._forks = identity is not None
        self._identity = identity or origin.identity
        self._sinks = Sinks(graph, store)
        if identity is None:
            self._sinks.known_as(origin.manifest)
        self.fences = Fences(store.disk, store.folder, clock, processes)

    def run(self) -> Restored:
        """1 to 8."""
        origin, uid = self._origin, self._identity.uid
        found = self._check()  # 1
        fresh = found is None or not self.fences.starts.numbers()
        self.fences.wait(self._settings.lease, self._choices.take_over)
        self._sinks.check_targets(uid)
        ahead = self._check_ledgers()
        try:
            self._sinks.open()
            if found is None:
                self._create()  # 2
            seen = [row.fence for row in self._sinks.ledgers(uid).values() if row is not None]
            fence = self.fences.claim(max([origin.manifest.fence, *seen]), self._settings.lease).fence  # 3
            self._sinks.register(uid, fence, lambda name: None)  # 4
            ahead = self._check_ledgers()
            manifest = self._prepare(fence, self._copied(fence))  # 5, 6
            rewound = {name: self._rewind(name, fence) for name in ahead}  # 7
            self._record(fence)  # 8
            if fresh:
                self._store.remove_manifest(0)  # the job must not fall back to an empty beginning
        finally:
            self._sinks.close([])
            self.fences.end()
        return Restored(origin.name, manifest.epoch, fence, rewound)

    # ---- 1 --------------------------------------------------------------------------------------------------------

    def _check(self) -> Identity | None:
        origin, graph = self._origin, self._graph
        found = self._store.identity()
        if found is not None and found.uid != self._identity.uid:
            raise Refused(
                "SW-SAVEPOINT-FOREIGN",
                f"{origin.name} is one of job {origin.identity.job} (uid {origin.identity.uid}), but {self._store.folder} is the "
                f"folder of {found.job} with another uid ({found.uid})",
                f"start from it in another --root; or {FORK}. Nothing was changed",
            )
        if not self._forks and origin.identity.job != graph.job:
            raise Refused(
                "SW-SAVEPOINT-FOREIGN",
                f"{origin.name} is one of job {origin.identity.job}, and this is job {graph.job}",
                f"run the job that it was taken of; or {FORK}. Nothing was changed",
            )
        files = StateFiles(self._store.disk, origin.folder)
        chains = {name: mine for name, mine in origin.chains.items() if name not in self._choices.drop_state}
        fitted = fit(
            graph,
            origin.identity.groups,
            origin.manifest,
            chains,
            files.schema,
            folder=self._store.folder,
            stored_in=origin.folder,
            unknown_drops=sorted({name.partition(".")[0] for name in self._choices.drop_state} - origin.chains.keys()),
            held=origin.chains.keys(),
            drop_fields=fields_among(self._choices.drop_state),
            requested=fields_among(self._choices.drop_state),
            changed_inputs=lambda: changed_inputs(graph, origin.sources),
            promise=None if self._choices.change_semantics else origin.promise,
        )
        if isinstance(fitted, Unfit):
            raise fitted.refused
        for gone in missing_input(graph, self.positions):
            raise Refused(
                "SW-LOG-GONE",
                f"the input behind {origin.name} is gone: {gone}",
                f"bring the log back from a copy; or skip what is gone, with --input {gone.source}=earliest, which says what that "
                "does to the results. Nothing was changed",
            )
        return found

    @property
    def positions(self) -> Position:
        """Where the job goes on."""
        return self._origin.manifest.positions.moved(self._choices.positions)

    def _check_ledgers(self) -> list[str]:
        """Refuse a sink that is not exactly at the origin. Returns the sinks that are ahead of it and are to be rewound."""
        origin = self._origin
        if not origin.promise.exactly_once:
            return []  # what was written at once is in no ledger
        ahead = []
        known = self._same_place()
        for name, row in self._sinks.ledgers(self._identity.uid).items():
            written = name in origin.manifest.sinks and not self._forks
            at = None if row is None else row.position
            if not written and at is None:
                continue
            if written and row is not None and at == origin.manifest.positions and row.manifest_sha256 in known:
                continue
            if at is None or not at.reaches(origin.manifest.positions) or not written:
                raise self._elsewhere(name, row)
            why = self._sinks.cannot_rewind(name, self._identity.uid, self._target)
            if why or not self._choices.rewind_output:
                raise self._ahead(name, at, why)
            ahead.append(name)
        return ahead

    @property
    def _target(self) -> LedgerRow:
        """The ledger row of a sink that is exactly at the origin."""
        return LedgerRow(0, self._origin.manifest.as_written.positions, self._origin.manifest.sha256)

    def _same_place(self) -> set[str]:
        """The hashes of the origin's manifest and of those built on it that have not read anything."""
        origin = self._origin.manifest
        known, more = {origin.sha256}, True
        stored = [one.manifest for one in self._store.stored() if one.manifest is not None]
        while more:
            more = False
            for one in stored:
                if one.parent_sha256 in known and one.positions == origin.positions and one.sha256 not in known:
                    known.add(one.sha256)
                    more = True
        return known

    def _ahead(self, name: str, at: Position, why: str) -> Refused:
        origin = self._origin
        rewind = "" if why else "; or remove what was written since, with --rewind-output"
        cannot = f" (it cannot be rewound: {why})" if why else ""
        return Refused(
            "SW-SINK-AHEAD",
            f"sink {name} is at {at}, ahead of {origin.name}, which is at {origin.manifest.positions}{cannot}: a start from there "
            "would skip what the sink has already, although other code may have written it",
            FORK + rewind + "; or bring back a copy of the target from that time. Nothing was changed",
        )

    def _elsewhere(self, name: str, row: LedgerRow | None) -> Refused:
        origin = self._origin
        at = "without a ledger of this job" if row is None else f"at {row.position or 'nothing'}"
        return Refused(
            "SW-SINK-LEDGER",
            f"sink {name} is {at}, but {origin.name} is at {origin.manifest.positions}",
            f"bring back the target that belongs to it; or {FORK}. Nothing was changed",
        )

    # ---- 2, 5, 6 --------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        identity = msgspec.structs.replace(
            self._identity, origin=self._origin.manifest.sha256, created=self._clock.now()
        )
        self._store.create_from(self._graph, identity)

    def _copied(self, fence: int) -> Manifest:
        """5. The manifest, under its first possible number."""
        origin, store = self._origin, self._store
        epoch = max(store.newest_number(), origin.manifest.epoch) + 1
        stem = f"{epoch:012d}-{fence}-{secrets.token_hex(4)}"
        chains = {name: mine for name, mine in origin.chains.items() if name not in self._choices.drop_state}
        components = {
            name: {
                instance: tuple(
                    self._copy(ref, _renamed(ref.path, stem, place), STATE_FILE) for place, ref in enumerate(chain)
                )
                for instance, chain in instances.items()
            }
            for name, instances in chains.items()
        }
        waiting = tuple(
            self._copy(ref, f"{WAITING}/{stem}{place or ''}.parquet", INBOX_FILE)
            for place, ref in enumerate(origin.waiting)
        )
        for ref in origin.inbox:
            if not store.disk.exists(store.folder / ref.path):
                self._copy(ref, ref.path, INBOX_FILE)
        if origin.folder != store.folder and not store.sources():
            store.write_sources(origin.sources)
        before, graph = origin.manifest, self._graph
        return Manifest(
            epoch=epoch,
            parent=before.epoch,
            parent_sha256=before.sha256,
            fence=fence,
            uid=self._identity.uid,
            positions=self.positions,
            components=components,
            sinks={} if self._forks else {n.id: SinkPart() for n in graph.sinks if n.id in before.sinks},
            counters={node.id: dict.fromkeys(KINDS, 0) for node in graph.nodes},
            fingerprint=graph.fingerprint,
            watermarks=before.watermarks,
            idle=before.idle,
            floors=before.floors,
            failed=waiting,
            taken=before.taken,
            ledgers=self._sinks.known_ids,
        )

    def _copy(self, ref: FileRef, path: str, kind: FileKind) -> FileRef:
        """A file of the origin in the job's folder. Where that is the same folder, it stays as it is."""
        if self._origin.folder == self._store.folder:
            return ref
        data = ref.read(self._store.disk, self._origin.folder, kind)
        return FileRef.write(self._store.disk, self._store.folder, path, data, ref.rows)

    def _prepare(self, fence: int, manifest: Manifest) -> Manifest:
        """6. Under at-most-once, the plan behind it keeps what may have been processed already from being read again."""
        while True:
            try:
                if self._origin.promise.at_most_once and self._origin.beyond.beyond(manifest.positions):
                    plan = Plan(manifest.epoch + 1, manifest.epoch, fence, manifest.positions, self._origin.beyond)
                    self._store.write_plan(plan)
                self._store.write_prepared(manifest)
                return manifest
            except FileExistsError:  # another driver has used the number
                self.fences.check(fence)
                manifest = msgspec.structs.replace(manifest, epoch=self._store.newest_number() + 1)

    # ---- 7, 8 -----------------------------------------------------------------------------------------------------

    def _rewind(self, name: str, fence: int) -> int:
        self.fences.check(fence)
        return self._sinks.rewind(name, self._identity.uid, msgspec.structs.replace(self._target, fence=fence))

    def _record(self, fence: int) -> None:
        self.fences.check(fence)
        before = self._origin.manifest
        self.fences.starts.write(
            fence, before.epoch, before.sha256, self._origin.promise, self._sinks.registered, self._graph.params
        )


def _renamed(path: str, stem: str, place: int) -> str:
    """The path for a copy of a state file: the files of one chain stay in order."""
    suffix = SNAPSHOT if path.endswith(SNAPSHOT) else DELTA
    return f"{path.rpartition('/')[0]}/{stem}{place:02d}{suffix}"
