"""`ReadAhead`: a standby reads the newest checkpoint before it takes the job over.

    the job is compared with the checkpoint      one that does not fit is refused now, and not at the takeover
    the host reads the states into its workers   (`Host.read_ahead`)
    each file is compared with its hash          a damaged one is reported while the holder can still write others

What is read is a hint: the takeover is an ordinary start, and reads for itself. It then finds the files in the machine's memory,
and the states in the workers' caches, under the hash of their files.
"""

from __future__ import annotations

from collections.abc import Callable

from streamwork.engine import Assignment
from streamwork.epoch import Host, Manifest, Store
from streamwork.epoch.names import Names
from streamwork.epoch.recovery.fit import Unfit, fit
from streamwork.epoch.recovery.verify import Verifier
from streamwork.epoch.start_records import StartRecords, fields_among
from streamwork.errors import Refused
from streamwork.job import Graph, Layout
from streamwork.state import FileChains, RestorePlan, StateFiles

READ_SECONDS = 5.0
MOST_SECONDS = 60.0
SHARE = 20
"""Reading takes about one part in so many of the time of a standby."""


def pause_after(took: float, reads: int) -> float:
    """How long to wait after a read that took so many seconds. The first ones start workers, and take longer than others."""
    return READ_SECONDS if reads < 2 else min(MOST_SECONDS, max(READ_SECONDS, (SHARE - 1) * took))


class ReadAhead:
    def __init__(
        self, graph: Graph, store: Store, starts: StartRecords, host: Host, note: Callable[[str], None]
    ) -> None:
        """`host` is open. `note` takes lines about damaged files."""
        self.checkpoint: int | None = None  # the newest that was read
        self.reads = 0
        self._closed = False
        self._graph = graph
        self._store = store.named(Names.of(graph))
        self._starts = starts
        self._host = host
        self._note = note
        self._verifier = Verifier(store)
        self._told: set[str] = set()
        self._layout: Layout | None = None

    def read(self) -> None:
        """Read the newest completed checkpoint, unless it is known. Raises Refused if the job does not fit it."""
        newest = max(self._store.completed(), default=None)
        identity = self._store.identity()
        if identity is None or newest is None or newest == self.checkpoint:
            return
        try:
            manifest = self._store.manifest(newest)
            found = self._fit(identity.groups, manifest, self._chains(manifest))
        except Refused as damaged:
            self._tell(newest, damaged.cause)
            return
        if isinstance(found, Unfit):
            raise found.refused
        if self._layout is None:
            self._layout = Layout.of(self._graph, identity.groups)
        if self._closed:
            return
        if found.is_in_place:  # else the start rewrites the state, and reads that
            self._host.read_ahead(self._layout, self._works(self._layout, manifest, found.chains))
        self.checkpoint = newest
        self.reads += 1
        for problem in self._verifier.problems(manifest):
            self._tell(newest, problem.what)
        self._verifier.keep(set(manifest.files))

    def close(self) -> None:
        """The takeover begins: a read that has not reached the host does not use it. May be called by any thread."""
        self._closed = True

    def _chains(self, manifest: Manifest) -> FileChains:
        dropped = self._starts.dropped_after(manifest.fence)
        return {name: instances for name, instances in manifest.components.items() if name not in dropped}

    def _fit(self, groups: int, manifest: Manifest, chains: FileChains) -> RestorePlan | Unfit:
        files = StateFiles(self._store.disk, self._store.folder)
        promise, folder = self._starts.promise(), self._store.folder
        drops = fields_among(self._starts.dropped_after(manifest.fence))
        return fit(
            self._graph, groups, manifest, chains, files.schema, folder=folder, drop_fields=drops, promise=promise
        )

    def _tell(self, epoch: int, problem: str) -> None:
        """Report a problem once, unless retention has removed the checkpoint, and its files, meanwhile."""
        if problem not in self._told and not self._closed and epoch in self._store.completed():
            self._told.add(problem)
            self._note(f"standby: checkpoint {epoch} is damaged: {problem}")

    def _works(self, layout: Layout, manifest: Manifest, chains: FileChains) -> list[Assignment]:
        """What the instances would begin with, without input."""
        return [
            Assignment(
                chain=number,
                instance=instance,
                uid=manifest.uid,
                folder=str(self._store.folder),
                groups=layout.groups,
                epoch=manifest.epoch,
                fence=0,
                extents={},
                states={name: stored[str(instance)] for name, stored in chains.items() if name in chain.nodes},
            )
            for number, chain in enumerate(layout.chains)
            for instance in range(chain.parallelism)
        ]
