"""Events that are not processed when an epoch ends: which are retried, which wait, which become dead letters.

resume    what waits is read; files of the inbox that no manifest counts are adopted; where events are no longer acknowledged,
          both go into the inbox, to be processed again at once
plan      letters that a person replays, and (under acknowledging) events that are due, go into the next epoch
prepare   what the instances could not do: it waits for its next attempt, or it is a dead letter; the manifest names both
prune     files of the inbox are removed that no kept checkpoint can need

The rules for files of the inbox are in `epoch.effects`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from streamwork.components import Position
from streamwork.components.columns import as_events
from streamwork.components.keys import instance_of
from streamwork.components.position import INBOX
from streamwork.delivery import Ack, Acknowledger, DeadLetters, Inbox, Letter, Replay, Waiting
from streamwork.delivery.inbox import MOST_REPLAYS, Entry, Taken, moved_id, taken_key, tracked_id
from streamwork.delivery.text import from_text, to_text
from streamwork.epoch.brought import Brought
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.participant import Participant
from streamwork.epoch.slices import extents
from streamwork.epoch.store import Store
from streamwork.errors import JobFailed
from streamwork.flow.lineage import first, lane_of, root_of
from streamwork.job import Graph, Layout, Settings

if TYPE_CHECKING:
    from streamwork.epoch.draft import ManifestDraft
    from streamwork.epoch.footing import Footing


class Redelivery(Participant):
    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        store: Store,
        new_stem: Callable[[], str],
        now: Callable[[], int],
    ) -> None:
        """`now` returns microseconds since 1970, by a clock that does not jump (`world.SteadyClock`)."""
        self.waiting: tuple[Waiting, ...] = ()
        self._graph = graph
        self._nodes = {node.id: node for node in graph.nodes}
        self._order = {node.id: number for number, node in enumerate(graph.nodes)}
        self._layout: Layout  # known from the start on
        self._store = store
        self._new_stem = new_stem
        self._now = now
        self._inbox = Inbox(store.disk, store.folder)
        self._letters = DeadLetters(store.disk, store.folder)
        self._fence = 0
        self._under_way: dict[int, set[str]] = {}  # epoch that is not prepared -> the events that come again in it
        self._taken_to = 0  # how far the plans take the inbox
        self._tracks = graph.promise.acknowledges
        self._policy = Acknowledger(settings.max_attempts, settings.retry_after, settings.ack_timeout)
        self._next: tuple[Waiting, ...] = ()  # what waits once the manifest is durable that is being prepared
        self._adopted: list[Taken] = []  # files whose events have joined those that wait, and no manifest says so yet
        self._accounted: dict[str, str] = {}  # key -> path of the files that the newest manifest accounts for

    def resume(self, footing: Footing) -> Sequence[str]:
        at, fence = footing.at, footing.fence
        self._fence, self._taken_to = fence, at.positions[INBOX]
        self._layout = Layout.of(self._graph, footing.identity.groups)
        self.waiting = tuple(self._policy.bounded(self._waiting(at), self._now()))
        self._accounted = {taken_key(path): path for path in at.taken}
        for node in self._graph.polled:
            if node.component.replayable:  # it gives again by itself what it gave to abandoned attempts
                every = {one.key for one in self._inbox.taken(node.id, fence)}
                self._inbox.discard(node.id, every, fence)
        return () if self._tracks else self._move_waiting(at)

    def _move_waiting(self, at: Manifest) -> tuple[str, ...]:
        """Events are no longer acknowledged: those that wait go into the inbox, which is part of every position. So each comes
        again as any other input does, from the next epoch on. A start that breaks off here finds what it has put there already.
        """
        orphans = self._orphans()
        waiting = [*self.waiting, *(one for orphan in orphans for one in self._events_of(orphan))]
        self._inbox.move([Entry(moved_id(one.id, at.epoch), one.source, one.instance, one.event) for one in waiting])
        self.waiting = ()
        for orphan in orphans:
            self._inbox.discard(orphan.source, {orphan.key}, self._fence)
        if not waiting:
            return ()
        return (f"events are no longer acknowledged: {len(waiting):,} that waited come again, through the inbox",)

    def _waiting(self, at: Manifest) -> list[Waiting]:
        """The events that wait, under the names that components have now."""
        port = self._store.names.port
        waiting = self._inbox.read_waiting(at.failed)
        return [msgspec.structs.replace(one, source=port(one.source)) for one in waiting]

    def _renamed(self, entry: Entry) -> Entry:
        return msgspec.structs.replace(entry, component=self._store.names.port(entry.component))

    # ---- plan -----------------------------------------------------------------------------------------------------

    def end(self, start: Position) -> dict[str, int]:
        """How far the inbox is taken by an epoch that begins at `start`."""
        was = start[INBOX]
        now = self._inbox.end(was)
        return {INBOX: now} if now > was else {}

    def has_news(self) -> bool:
        """True if the inbox has more than the epochs in flight take."""
        return self._inbox.end(self._taken_to) > self._taken_to

    def is_due(self) -> bool:
        """True if something that waits is to be done now, whether there is new input or not."""
        coming_again = {one for ids in self._under_way.values() for one in ids}
        due = self._policy.next_due(one for one in self.waiting if one.id not in coming_again)
        return (due is not None and due <= self._now()) or (self._tracks and bool(self._orphans()))

    def planned(self, epoch: Epoch) -> None:
        """Say what the epoch processes besides its slices."""
        plan = epoch.plan
        self._taken_to = max(self._taken_to, plan.end[INBOX])
        entries = map(self._renamed, self._inbox.between(plan.start[INBOX], plan.end[INBOX]))
        coming = [_coming(entry) for entry in entries]
        self._under_way.pop(epoch.number, None)
        if not self._tracks:
            self._under_way[epoch.number] = set()
            epoch.brought = Brought(tuple(Replay(one.source, self._instance(one), one.event) for one in coming))
        else:
            self.waiting += tuple(one for orphan in self._orphans() for one in self._events_of(self._adopt(orphan)))
            known = {one.id for one in self.waiting} if coming else set()
            again = [one for one in coming if one.id not in known]
            coming_again = {one for ids in self._under_way.values() for one in ids}
            idle = [one for one in self.waiting if one.id not in coming_again]
            again += self._policy.due(idle, self._now(), max(1, MOST_REPLAYS - len(again)))
            self._under_way[epoch.number] = {one.id for one in again}
            replays = [Replay(one.source, self._instance(one), one.event, root_of(0, i)) for i, one in enumerate(again)]
            replays.sort(key=lambda replay: replay.component)
            lanes, instances = self._lanes(epoch)
            epoch.brought = Brought(tuple(replays), lanes, instances, tuple(again))

    def _instance(self, one: Waiting) -> int:
        """The instance that has the key; else the one that the event came in by before, if there still is one of that number."""
        node = self._nodes.get(one.source.partition(":")[0])
        port = None if node is None else node.at(one.source)
        if node is None or (port is None and node.ports):
            raise JobFailed(
                "SW-INBOX-EVENT",
                f"event {one.id} is to come again to {one.source!r}, which the job does not have",
                f"give the component that takes it the id {one.source!r}, and start again",
                retryable=False,
            )
        if port is None or port.key is None or port.takes is None:
            return min(one.instance, node.parallelism - 1)
        try:
            event = from_text(port.takes, one.event)
        except (msgspec.ValidationError, msgspec.DecodeError):
            return 0  # the instance says what is wrong with it
        groups = self._layout.groups
        return instance_of(port.key.groups(port.key.values([event]), groups)[0], node.parallelism, groups)

    def _lanes(self, epoch: Epoch) -> tuple[dict[str, int], dict[str, int]]:
        """A number for every source partition of an epoch, and the instance that reads it."""
        found: dict[str, int] = {}
        for chain in self._layout.chains:
            for instance in range(chain.parallelism):
                mine = extents(self._graph, epoch.partitions, chain.nodes, instance, epoch.plan)
                found.update((f"{name}/{part}", instance) for name, parts in mine.items() for part in parts)
        return {name: lane for lane, name in enumerate(sorted(found), start=1)}, found

    def _orphans(self) -> list[Taken]:
        """What sources without offsets gave to attempts that the newest manifest does not account for. Of several copies of a
        file the one of the highest fence.
        """
        known = {*self._accounted, *(one.key for one in self._adopted)}
        polled = [node.id for node in self._graph.polled if not node.component.replayable]
        lost = [*polled, *(was for name in polled for was in self._store.names.former(name))]
        found = sorted((one for source in lost for one in self._inbox.taken(source, self._fence)), key=_by_fence)
        newest = {one.key: one for one in found}
        flying = {(self._fence, epoch) for epoch in self._under_way}
        lost_files = [one for key, one in newest.items() if key not in known and (one.fence, one.epoch) not in flying]
        return sorted(lost_files, key=lambda one: one.path)

    def _adopt(self, orphan: Taken) -> Taken:
        """Its events join those that wait. The copy comes first, then the names of lower fences are removed."""
        mine = self._inbox.adopt(orphan, self._fence)
        self._inbox.discard(orphan.source, {orphan.key}, self._fence - 1)
        self._adopted.append(mine)
        return mine

    def _events_of(self, taken: Taken) -> list[Waiting]:
        source, why = self._store.names.port(taken.source), "its epoch was abandoned"
        return [
            Waiting(f"{taken.key}-{i}", source, taken.instance, event, 0, 0, False, source, why)
            for i, event in enumerate(self._inbox.read_taken(taken.path))
        ]

    # ---- prepare --------------------------------------------------------------------------------------------------

    def contribute(self, epoch: Epoch, draft: ManifestDraft) -> None:
        """Events that the instances could not process wait for their next attempt, or become dead letters."""
        if not self._tracks:
            draft.taken = tuple(self._accounted.values())
            return
        plan, brought, reports = epoch.plan, epoch.brought, epoch.reports
        taken = {f"{r.component}/{r.instance}": r.taken.path for r in reports if r.taken is not None}
        replayed = {
            first(root) for report in reports for root in report.again
        }  # at once: their failures count for nothing
        troubles = [one for report in reports for one in report.troubles if one.root not in replayed]
        troubles.sort(key=lambda trouble: (self._order[trouble.component], trouble.instance))
        events = self._events(epoch, draft.positions, brought, {trouble.root for trouble in troubles}, taken)
        acked = [Ack(one, f"{report.component}/{report.instance}") for report in reports for one in report.acked]
        outcome = self._policy.resolve(
            plan.epoch, self._now(), self.waiting, brought.again, troubles, acked, events.__getitem__
        )
        given_up: dict[str, list[Letter]] = defaultdict(list)
        for letter in outcome.letters:
            given_up[letter.component].append(letter)
        stem = f"{plan.epoch:012d}-{self._new_stem()}"
        for component, mine in given_up.items():
            ref = self._letters.stage(f"outputs/{component}/{stem}.letters.parquet", mine)
            draft.letters.setdefault(component, {})["given-up"] = ref
        if outcome.waiting:
            draft.failed = (self._inbox.write_waiting(stem, outcome.waiting),)
        draft.taken = (*self._accounted.values(), *(one.path for one in self._adopted), *taken.values())
        draft.count(outcome.counts)
        self._next = outcome.waiting

    def idle(self, epoch: Epoch) -> None:
        self._under_way.pop(epoch.number, None)

    def abandoned(self, epoch: Epoch) -> None:
        self._under_way.pop(epoch.number, None)

    def prepared(self, epoch: Epoch) -> None:
        self._under_way.pop(epoch.number, None)
        self.waiting, self._next = self._next, ()
        self._adopted.clear()
        self._accounted = {taken_key(path): path for path in epoch.manifest.taken}

    def _events(
        self, epoch: Epoch, end: Position, brought: Brought, roots: set[int], taken: dict[str, str]
    ) -> dict[int, Waiting]:
        """The events of these roots. Those of a source with offsets are read again."""
        names = {lane: name for name, lane in brought.lanes.items()}
        wanted: dict[int, dict[int, int]] = defaultdict(dict)  # lane -> number -> root
        for root in roots:
            before = first(root)
            lane, number = lane_of(root if before is None else before)
            wanted[lane][number] = root
        found: dict[int, Waiting] = {}
        for lane, numbers in wanted.items():
            if lane == 0:
                found.update((root, brought.again[number]) for number, root in numbers.items())
                continue
            name = names[lane]
            source = name.partition("/")[0]
            texts = (
                self._inbox.read_taken(taken[name])
                if name in taken
                else self._read(name, epoch.start[name], end[name], set(numbers))
            )
            for number, root in numbers.items():
                event_id, text = f"{name}/{epoch.number}-{number}", texts[number]
                attempts = 0 if first(root) is None else 1
                found[root] = Waiting(event_id, source, brought.instances[name], text, attempts, 0, False, "", "")
        return found

    def _read(self, name: str, start: int, end: int, numbers: set[int]) -> dict[int, str]:
        source, _, partition = name.partition("/")
        found: dict[int, str] = {}
        at, wanted = 0, sorted(numbers)
        slices: Any = self._graph[source].component.slices(source, partition, start, end)
        for piece in slices:
            if at > wanted[-1]:
                break
            given, count = piece.given, len(piece.given)
            mine = wanted[bisect_left(wanted, at) : bisect_left(wanted, at + count)]  # no object is made of the others
            found.update((number, to_text(as_events(given[number - at : number - at + 1])[0])) for number in mine)
            at += count
        return found

    # ---- prune ----------------------------------------------------------------------------------------------------

    def prune(self, oldest: Manifest) -> None:
        """Remove the files of the inbox that the oldest kept manifest accounts for: no start needs them."""
        keys = {taken_key(path) for path in oldest.taken} & self._accounted.keys()
        for source in {key.partition("/")[0] for key in keys}:
            self._inbox.discard(source, keys, self._fence)
        for key in keys:
            del self._accounted[key]


def _coming(entry: Entry) -> Waiting:
    """What a numbered file brings, as the acknowledger knows it: an event of which nothing has failed yet."""
    return Waiting(tracked_id(entry), entry.component, entry.instance, entry.event, 0, 0, False, entry.component, "")


def _by_fence(taken: Taken) -> int:
    return taken.fence
