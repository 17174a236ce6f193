"""The sinks of a job as a driver sees them: registered, asked for their ledgers, offered manifests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from streamwork.components import LedgerEntry, LedgerRow, Observer, Position, Sink
from streamwork.components.sink import RowsRejected
from streamwork.delivery import DeadLetters, Letter
from streamwork.delivery.counts import Refusals
from streamwork.delivery.letters import letter_id
from streamwork.delivery.text import to_text
from streamwork.engine.steps.staging import read_staged
from streamwork.epoch import reported
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.manifest import Manifest, SinkPart
from streamwork.epoch.participant import Participant
from streamwork.epoch.rejected import sift
from streamwork.epoch.store import Store
from streamwork.errors import JobFailed, Refused, StreamworkError, described, raised_at
from streamwork.job import Graph, Node
from streamwork.job.semantics import Isolation

if TYPE_CHECKING:
    from streamwork.epoch.draft import ManifestDraft


class Sinks(Participant):
    def __init__(self, graph: Graph, store: Store) -> None:
        self._graph = graph
        self._store = store
        self._nodes: Mapping[str, Node] = {n.id: n for n in graph.sinks if isinstance(n.component, Sink)}
        self._sinks: Mapping[str, Sink[Any]] = {name: node.component for name, node in self._nodes.items()}
        self._ledgered = {name: sink for name, sink in self._sinks.items() if sink.kind.keeps_ledger}
        self._previewed = [name for name, n in self._nodes.items() if n.isolation is Isolation.READ_UNCOMMITTED]
        self._observers = {n.id: n.component for n in graph.sinks if isinstance(n.component, Observer)}
        self._letters = DeadLetters(store.disk, store.folder)
        self._uid = ""
        self._fence = 0
        self._ids: dict[str, str] = {}  # sink -> the id that its ledger row has, where it is another one
        self.refusals = {"dropped": 0, "dead_letters": 0}
        """Rows that sinks refused at a commit of this driver: how many were "dropped", how many became "dead_letters"."""
        self._refused: dict[int, dict[str, tuple[str, int]]] = {}  # epoch -> as `Refusals`

    @property
    def ids(self) -> list[str]:
        """The sinks that checkpoints are committed to; under other semantics than exactly-once the instances write."""
        return list(self._sinks) if self._graph.promise.exactly_once else []

    @property
    def registered(self) -> list[str]:
        """The sinks that have a ledger row once they are registered."""
        return list(self._ledgered)

    def known_as(self, manifest: Manifest) -> None:
        """A manifest of the job says under which ids its ledgers know the sinks. To be called first."""
        self._ids = self._store.names.ledgers(manifest, self._graph)
        for name in self._previewed:
            if name in self._ids:
                raise Refused(
                    "SW-SINK-RENAMED",
                    f"sink {name} has isolation=read-uncommitted, but its target knows it as {self._ids[name]!r}",
                    f"give it the id {self._ids[name]!r} again, or leave isolation= out",
                )

    @property
    def known_ids(self) -> dict[str, str] | msgspec.UnsetType:
        """For a manifest: the ids in ledgers, where they are others than those of the sinks."""
        return self._ids or msgspec.UNSET

    def _id(self, name: str) -> str:
        return self._ids.get(name, name)

    def check_targets(self, uid: str) -> None:
        """Refuse targets that are not this job's, before anything is made; `uid` is empty if the job is new."""
        for name, sink in self._ledgered.items():
            sink.check_target(uid, self._id(name))

    def open(self) -> None:
        for name, node in self._nodes.items():
            assert node.takes is not None
            self._sinks[name].open(node.takes)

    def ledgers(self, uid: str) -> dict[str, LedgerRow | None]:
        """The ledger rows, with positions in the names that sources have now."""
        rows = {name: sink.ledger(uid, self._id(name)) for name, sink in self._ledgered.items()}
        return {name: None if row is None else self._in_names_of_today(row) for name, row in rows.items()}

    def _in_names_of_today(self, row: LedgerRow) -> LedgerRow:
        if row.position is None:
            return row
        return msgspec.structs.replace(row, position=self._store.names.position(row.position))

    def register(self, uid: str, fence: int, tell: Callable[[str], None]) -> None:
        """Write the fence into every sink that keeps one: from here on no older driver gets anything committed."""
        self._uid, self._fence = uid, fence
        for name, sink in self._ledgered.items():
            sink.register(uid, self._id(name), fence)
            if name in self._previewed:
                sink.open_previews(uid, name)
            tell(name)

    def offer(
        self,
        name: str,
        manifest: Manifest,
        parent: Manifest | None,
        deterministic: bool,
        first: bool = True,
        refill: bool = False,
    ) -> None:
        """Offer what a manifest staged for one sink; the ledger decides (`components.commit_rule`). If another driver may have
        offered it before, it is not the `first` time: what that one left out does not count (`epoch.effects`). With `refill`
        it is the first that the sink is given again.

        Without its parent, which may be gone, the sink must be where the parent left it: its row names it.
        """
        start = self._written(name) if parent is None else parent.as_written.positions
        entry = LedgerEntry(
            uid=self._uid,
            sink=self._id(name),
            fence=self._fence,
            epoch=manifest.epoch,
            start=start,
            end=manifest.as_written.positions,
            parent_sha256=manifest.parent_sha256,
            manifest_sha256=manifest.sha256,
            deterministic=deterministic,
            first=refill or manifest.sinks[name].first,
        )
        if not first:
            self._letters.stage_refused(name, manifest.epoch, self._fence, ())
        try:
            self._commit(name, entry, self.staged(manifest, name))
        except RowsRejected as rejected:
            self._commit(name, entry, iter(self._without_rejected(name, manifest, rejected)))

    def _commit(self, name: str, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        """What a sink raises without a code gets one: it is the failure of the job, which the next start rolls forward."""
        try:
            self._sinks[name].commit(entry, staged)
        except (StreamworkError, RowsRejected, OSError):
            raise
        except Exception as error:
            raise JobFailed(
                "SW-SINK-FAILED",
                f"sink {name} ({self._nodes[name].title}) could not commit checkpoint {entry.epoch}: "
                f"{described(error)}{raised_at(error)[1]}",
                "correct the target, or what the sink calls, and start again: the checkpoint is committed then",
            ) from error

    def _written(self, name: str) -> Position:
        """The position of a sink, in the names that its ledger row has."""
        row = self._sinks[name].ledger(self._uid, self._id(name))
        return row.position if row is not None and row.position is not None else Position()

    def rebase(self, name: str, manifest: Manifest) -> None:
        """The sink has every row up to this manifest, from one that cannot be used, or committed none of them: let its row name
        this one.
        """
        self._sinks[name].commit(
            LedgerEntry(
                uid=self._uid,
                sink=self._id(name),
                fence=self._fence,
                epoch=manifest.epoch,
                start=self._written(name),
                end=manifest.as_written.positions,
                parent_sha256=manifest.parent_sha256,
                manifest_sha256=manifest.sha256,
                deterministic=True,
                first=False,
            ),
            iter(()),
        )

    def cannot_rewind(self, name: str, uid: str, to: LedgerRow) -> str:
        """Why a sink cannot be rewound to a checkpoint; empty if it can."""
        return self._sinks[name].cannot_rewind(uid, self._id(name), to)

    def rewind(self, name: str, uid: str, to: LedgerRow) -> int:
        """Remove what a sink has beyond a checkpoint. Returns the number of rows."""
        return self._sinks[name].rewind(uid, self._id(name), to)

    def refused(self, epoch: int) -> Refusals:
        """The rows of this epoch that sinks refused. These, and those of older epochs, are forgotten then."""
        found = self._refused.get(epoch, {})
        self._refused = {number: rows for number, rows in self._refused.items() if number > epoch}
        return found

    # ---- as a participant -----------------------------------------------------------------------------------------

    def contribute(self, epoch: Epoch, draft: ManifestDraft) -> None:
        draft.sinks = {
            node.id: SinkPart(reported.staged(node.id, epoch.reports), first=node.id not in draft.parent.sinks)
            for node in self._graph.sinks
            if self._graph.is_staged(node)
        }
        draft.ledgers = self.known_ids

    def completed(self, epoch: Epoch) -> None:
        """Show the rows to observers."""
        for name, observer in self._observers.items():
            for batch in self.staged(epoch.manifest, name):
                observer.observe(name, batch)

    def abandoned(self, epoch: Epoch) -> None:
        """Withdraw the previews of its rows."""
        for name in self._previewed:
            self._sinks[name].withdraw(self._uid, name, epoch.number)

    def close(self, unprepared: Sequence[Epoch]) -> None:
        for sink in self._sinks.values():
            sink.close()

    # ---- rows -----------------------------------------------------------------------------------------------------

    def staged(self, manifest: Manifest, name: str) -> Iterator[pa.RecordBatch]:
        for ref in manifest.sinks[name].staged.values():
            yield from read_staged(self._store.disk, self._store.folder, ref)

    def _without_rejected(self, name: str, manifest: Manifest, rejected: RowsRejected) -> list[pa.RecordBatch]:
        """Set the rows aside that are to blame, if the sink's `on_error` allows it."""
        on_error = self._nodes[name].on_error
        takes = self._nodes[name].takes
        assert takes is not None
        accepted, refused = sift(list(self.staged(manifest, name)), self._sinks[name].rejects, takes)
        if on_error == "fail" or not refused:
            row = f"row {refused[0][0]}" if refused else "a row that could not be identified"
            raise JobFailed(
                "SW-SINK-REJECTED",
                f"sink {name} refuses {row} of checkpoint {manifest.epoch} for good: {rejected}",
                'change the target so that it takes the row; or give the sink on_error="dead-letter" (kept in dead-letters/) or '
                '"drop", and start again: the checkpoint goes on from here, without that row',
                retryable=False,
                about_one_event=True,
                component=name if refused else "",
            ) from rejected
        became = "dead_letters" if on_error == "dead-letter" else "dropped"
        self.refusals[became] += len(refused)
        self._refused.setdefault(manifest.epoch, {})[name] = (became, len(refused))
        if on_error == "dead-letter":
            letters = [
                Letter(
                    letter_id(name, manifest.epoch, "refused", i), name, 0, manifest.epoch, why, 1, name, to_text(row)
                )
                for i, (row, why) in enumerate(refused)
            ]
            self._letters.stage_refused(name, manifest.epoch, self._fence, letters)
        return accepted
