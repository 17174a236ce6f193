"""Effects outside the manifest: published dead letters, files of the inbox, rows that a sink refuses. When they happen.

The rule. A manifest counts by itself: it is completed or not, and the start of a higher fence says which ones count. Files that no
manifest protects follow one rule: an effect outside the manifest happens after the manifest is completed and the fence was
checked, or it counts only if a completed manifest names it. A driver removes names of its own fence and of lower ones, never of a
higher one; what a newcomer needs of a lower fence it first copies to a name with its own fence.

An epoch N of the driver with fence F, by the numbers of `epoch.driver`:

    2   inbox/SOURCE/N-F-ATTEMPT-INSTANCE   what a source without offsets gave; durable before it is processed
        outputs/COMPONENT/N-F-...letters    letters of the instances
    4   prepared manifest                   names the letters, the events that wait, and (`taken`) the inbox files it accounts for
    5a  outputs/SINK/N-F-refused            the rows that F leaves out, recorded before 5b
    5b  the sink commits                    without those rows
    6   completed manifest
    6a  check                               a higher fence exists: stop here. That driver does the rest, if N counts
    6b  publish                             dead-letters/COMPONENT/N, dead-letters/SINK/N.refused. From here on they can be replayed
    7   prune, after a check                an inbox file goes when the oldest kept manifest accounts for it. Until then a fall back
                                            finds the events again

A start with fence F, by the numbers of `epoch.recovery.recovery`:

    6a  outputs/SINK/N-F-refused            before each offer, also if no row is refused: the record of the highest fence says what
                                            the sink's commit left out, since no lower fence commits after 4
    7a  check
    7b  publish the refused rows            of every epoch that the sink has: its ledger reaches the end of the epoch, or is beyond
                                            the start of one whose end is not known. Records of a fence below the last one that got
                                            to 8 are settled: a driver that wakes up may still write one; it is ignored
    8a  publish the letters                 of the manifest that was chosen
    8b  adopt                               inbox files that the chosen manifest does not account for: copied to names with F, then
                                            the lower names are removed. At every plan again: a driver that has lost its job may
                                            still poll its source
    9   set aside                           published letters of manifests that the chosen one was not built on: they come again.
                                            Their names have no fence: they are listed before the check, so that letters that a
                                            newcomer publishes are not among them

What a crash leaves, and what the next start does with it:

    after 2            inbox files that no manifest accounts for: 8b. Letters that no manifest names: removed
    after 4            rolled forward: 6a to 8a publish its letters
    after 5a           the sink does not have N: it is offered N again; the new record takes the place of the old one
    after 5b           the sink has N: its record, the newest, is published in 7b
    after 6, in 6b     7b and 8a publish the same files again
    in 7               files are left that the chosen manifest accounts for: they are no orphans, and go at the next prune
    in 8b, copied      two names of one file: the higher one counts, and the lower one is removed

Two drivers. A driver that has lost its job cannot get past 6a or a check before 7. Most are turned away in 5b already, by the
ledger of a sink; 6a alone stops one whose job has no sink with a ledger: it may complete N when the newcomer has read manifests
before, and computes that slice again. Its letters and the newcomer's would be two for one event, each of which can be replayed.
One that passed 6a before the newcomer took its
fence has completed N before the newcomer reads manifests: N counts, and both publish the same letters. If the newcomer cannot
use N, because it is damaged, it sets N aside; letters of N that are published after that are ignored (`DeadLetters`) and set aside
by the next start.

Fall back. A letter may have been replayed before its checkpoint is lost. When its slice is computed again, the event fails again;
the new letter takes the id of the old one, and so is known as replayed: an event that failed has one letter that can be replayed.
Letters are recognised by their content, in epochs that begin before the end of the lost one.

Ends. The manifest of an epoch names its end, also after it was set aside. Where both copies are damaged, the plan names it, unless
slices ended by report (`Plan`): then the end is not known. A letter of such an epoch is recognised as long as its plan is kept.
That gives no event a second letter and takes none away: events of the same content can stand for each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import msgspec

from streamwork.components import LedgerRow, Position
from streamwork.delivery import DeadLetters, Inbox, Letter
from streamwork.delivery.counts import Refusals
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.slices import by_report
from streamwork.epoch.store import Store
from streamwork.errors import Refused
from streamwork.job import Graph


class Effects:
    def __init__(self, graph: Graph, store: Store) -> None:
        self._graph = graph
        self._store = store
        self._letters = DeadLetters(store.disk, store.folder)
        self._inbox = Inbox(store.disk, store.folder)

    def publish(self, manifest: Manifest) -> None:
        """6b, 8a. Publish the letters that a completed manifest names."""
        for component, staged in manifest.letters.items():
            if self._letters.published(component, manifest.epoch):
                continue
            letters = [letter for ref in staged.values() for letter in self._letters.read_staged(ref)]
            self._letters.keep(component, manifest.epoch, self._with_known_ids(component, manifest.epoch, letters))

    def publish_refused(self, epoch: int, fence: int, refused: Refusals) -> None:
        """6b. Publish the rows of a completed epoch that sinks refused, where these become dead letters."""
        for sink, (became, _) in refused.items():
            if became == "dead_letters":
                self._letters.publish_refused(sink, epoch, fence)
                self._letters.discard_refused(sink, epoch, fence)

    def publish_refused_at_start(
        self, ledgers: Mapping[str, LedgerRow | None], ends: Mapping[int, Position], started: int
    ) -> None:
        """7b. Publish the refused rows of every epoch that a sink has. `ends` are the positions of the manifests that can be
        read, `started` is the highest fence that got to 8.
        """
        for sink, row in ledgers.items():
            newest: dict[int, int] = {}
            for epoch, fence in self._letters.staged_refused(sink):
                if fence >= max(started, newest.get(epoch, 0)):
                    newest[epoch] = fence
            for epoch, fence in newest.items():
                if row is not None and row.position is not None and self._has(row.position, epoch, ends.get(epoch)):
                    self._letters.publish_refused(sink, epoch, fence)

    def void(self, newest: int, unused: Collection[int]) -> list[str]:
        """9. The published letters of manifests that a start from checkpoint `newest` does not build on: those beyond it, and
        `unused`. To be listed before a check of the fence.
        """
        return self._letters.void(newest, unused)

    def set_aside(self, fence: int, void: Sequence[str]) -> None:
        """9. Set published letters aside, after the check."""
        for path in void:
            self._store.quarantine(fence, path)

    def _with_known_ids(self, component: str, epoch: int, letters: Sequence[Letter]) -> list[Letter]:
        """Letters that were replayed, and whose checkpoint was lost, give their ids to the letters that take their place."""
        lost = self._letters.set_aside(component)
        if not lost:
            return list(letters)
        replayed = self._inbox.replayed()
        replayed -= {letter.id for letter in self._letters.all(component) if letter.epoch != epoch}
        known: dict[tuple[str, str], list[str]] = defaultdict(list)
        for other in sorted(lost):
            again = [letter for letter in lost[other] if letter.id in replayed]
            if again and self._overlap(epoch, other):
                for letter in again:
                    known[letter.to, letter.event].append(letter.id)
        return [
            msgspec.structs.replace(letter, id=ids.pop(0)) if (ids := known[letter.to, letter.event]) else letter
            for letter in letters
        ]

    def _overlap(self, epoch: int, lost: int) -> bool:
        """True if an epoch begins before the end of one that was set aside, or may do so."""
        manifest = self._store.set_aside(lost)
        try:
            end = self._planned_end(lost) if manifest is None else manifest.positions
            return end is None or not self._store.plan(epoch).start.reaches(end)
        except Refused:  # a plan is gone: the lost epoch lies further back than any that is kept
            return False

    def _has(self, position: Position, epoch: int, end: Position | None) -> bool:
        """True if a sink at this position has an epoch, which ended at `end`; None if its manifest cannot be read.

        Only the last epoch that a driver recorded may be missing in the sink, and no other begins where that one does. So if its
        end is not known, a sink beyond its start has it.
        """
        try:
            known = self._planned_end(epoch) if end is None else end
            return position.beyond(self._store.plan(epoch).start) if known is None else position.reaches(known)
        except Refused:  # its plan is gone, too
            return True

    def _planned_end(self, epoch: int) -> Position | None:
        """The end of an epoch by its plan; None if slices of it end by report. Refuses if the plan cannot be read."""
        plan = self._store.plan(epoch)
        return None if by_report(self._graph, plan) else plan.end
