"""One instance of a chain at work: it owns the chain, its states, and the files that they are written to.

begin(epoch)   opens places for the outputs of this epoch; operators are set up before the first event
...            events pass the chain
finish()       makes changed records and staged outputs durable; the report names them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.components import Event, PreviewLabel, Slice
from streamwork.components.columns import check_entered
from streamwork.components.field_types import Misfit
from streamwork.components.table_operator import TableOperator
from streamwork.components.times import from_microseconds, microseconds
from streamwork.delivery import DeadLetters, Letter, Trouble
from streamwork.delivery.counts import Counts, broken_off
from streamwork.delivery.letters import letter_id
from streamwork.delivery.retrying import Marks
from streamwork.delivery.text import from_text, to_text
from streamwork.engine.assignment import Assignment
from streamwork.engine.chain import Chain
from streamwork.engine.fired import claim_path
from streamwork.engine.reading import Reading
from streamwork.engine.report import Report
from streamwork.engine.steps.staging import Staging
from streamwork.errors import JobFailed
from streamwork.flow.acks import Acks
from streamwork.flow.batch import Batch
from streamwork.flow.blame import Blame
from streamwork.flow.lineage import Lineage
from streamwork.flow.progress import Progress
from streamwork.job import Graph, Node
from streamwork.job.semantics import Isolation
from streamwork.state import State, StateFiles, is_snapshot
from streamwork.state.rows import RowFormat, StateKind
from streamwork.world import Clock, Disk, FileRef, RealClock

Restore = Callable[[RowFormat, tuple[FileRef, ...]], State]
Read = Callable[[str, int, int], Iterator[Slice]]  # as `OffsetSource.read`


class Instance:
    def __init__(
        self, chain: Chain, disk: Disk, work: Assignment, restore: Restore | None = None, clock: Clock | None = None
    ) -> None:
        """Restore the states that `work` names: from their files, or as `restore` does it."""
        self.chain = chain
        self._wall = clock or RealClock()
        self._clock = self._wall.monotonic
        self.reading = Reading(chain, disk, Path(work.folder), self._clock)
        self.refs = dict(work.states)  # component -> the files that hold its state
        self.lanes: dict[str, int] = {}  # under acknowledging, of the epoch under way
        self.follows = False  # True if it reads all the time
        self.before_checkpoint: Callable[[], object] = lambda: None
        self._naming = Lock()  # of `refs`: files may be written by another thread
        self._disk = disk
        self._work = work
        chain.settle(Path(work.folder))
        chain.check_keys(work.groups)
        if chain.graph.promise.at_most_once:
            chain.guard_times(disk, Path(work.folder))
        self.attempt = ""
        self._files = StateFiles(disk, Path(work.folder))
        self.formats = {
            node.id: row_format(chain.graph, node, work.groups) for node in chain.nodes if node.keeps is not None
        }
        restore = restore or self._load
        self.states = {name: restore(rows, self.refs.get(name, ())) for name, rows in self.formats.items()}
        self._stagings: dict[str, Staging] = {}
        self._has_begun = False
        self._stem = ""
        self.epoch = 0  # 0: none is under way
        self.marks: Marks  # of the epoch under way: the events that wait to be retried
        self._counts = False  # True while the chain counts for the epoch under way
        chain.progress = Progress(unfed_is_idle=any(node.time is not None for node in chain.nodes))
        idle = [name for name, one in work.idle.items() if one.idle]
        chain.progress.resume(work.watermarks, idle, work.floor)
        chain.idling.resume(work.watermarks, work.idle)

    def adopt(self, states: dict[str, tuple[FileRef, ...]]) -> None:
        """Name the files as the driver does: it may have put a snapshot in the place of many of them."""
        with self._naming:
            for name, files in states.items():
                mine = self.refs.get(name, ())
                last = next((ref for ref in reversed(files) if not is_snapshot(ref)), None)
                if last in mine:
                    self.refs[name] = (*files, *(ref for ref in mine[mine.index(last) + 1 :] if ref not in files))

    def measure(self) -> None:
        """Measure how long events take to the sinks of this chain."""
        self.chain.measure(self._wall.now)

    def begin(self, work: Assignment, attempt: str) -> None:
        """Begin an epoch; `attempt` is a name that was never used before."""
        self.epoch, self.attempt = work.epoch, attempt
        self._stem = f"{work.epoch:012d}-{work.fence}-{attempt}-{self.chain.instance}"
        self.reading.begin(work, self._stem)
        sinks = [node for node in self.chain.nodes if node in self.chain.graph.sinks]
        self._stagings = {
            node.id: Staging(
                self._disk,
                Path(work.folder),
                f"outputs/{node.id}/{self._stem}.arrow",
                node.takes,
                Blame.of(self.chain.graph, node.inputs),
                self._preview(node),
                self._clock,
            )
            for node in sinks
            if node.takes is not None
        }
        self._counts = False
        now = work.ticks[0] if work.ticks else round(self._wall.now() * 1_000_000)
        self.chain.now, self.chain.checkpoint = from_microseconds(now), work.epoch
        self.marks = Marks(self._disk, Path(work.folder), work.fence, work.epoch, self._wall)
        self.chain.open(self.states, self._stagings, self._claim, self.marks)
        self._counts = True
        self.chain.begin_times(work.epoch, attempt, None if self._has_begun else work.parent)
        self._has_begun = True
        self.lanes = work.lanes
        if self.chain.graph.promise.acknowledges:
            self.chain.track(work.lanes, work.event_ids(), bool(work.retried) or self.follows)

    def unplanned(self, epoch: int) -> Assignment:
        """For an epoch that has begun before, as can happen where inputs are not aligned: it brings nothing more."""
        return msgspec.structs.replace(self._work, epoch=epoch, ticks=(), replays=(), extents={})

    def bring(self, work: Assignment) -> None:
        """Pass on what an epoch brings besides its slices: ticks of the clock, and replayed events."""
        for tick in work.ticks:
            self.chain.tick(from_microseconds(tick))
        for to, share in groupby(work.replays, key=lambda replay: replay.component):
            node, replays = self.chain.graph[to.partition(":")[0]], list(share)
            port = node.at(to)
            kind = node.gives if port is None else port.takes
            assert kind is not None
            events = [_event(node, kind, replay.event) for replay in replays]
            lineage = None
            if self.chain.graph.promise.acknowledges:
                lineage = Lineage(roots=np.array([replay.root for replay in replays], np.int64))
            self.chain.replay(to, Batch(events, lineage))

    def finish(self, consumed: tuple[str, ...] = ()) -> tuple[Report, ...]:
        """The checkpoint of this epoch: between two events, for every component of the chain alike."""
        return self.seal(consumed)()

    def seal(self, consumed: tuple[str, ...] = ()) -> Callable[[], tuple[Report, ...]]:
        """Like `finish`, but nothing is durable yet: the result writes the files, and may be called from another thread while the
        next epoch is processed. The results of several epochs are called in their order.
        """
        chain, stem, files = (
            self.chain,
            f"{self._work.fence}-{self.attempt}",
            f"outputs/{{}}/{self._stem}.letters.parquet",
        )
        self.before_checkpoint()
        counters = chain.end()
        captured = {}
        for name, rows in self.formats.items():
            with Blame.of_state(chain.graph, name).blaming():
                captured[name] = self._files.capture(
                    rows, self.states[name], chain.instance, self.epoch, stem, self._work.memory, hurry=self.follows
                )
        staged = {name: staging.seal() for name, staging in self._stagings.items()}
        letters = {name: (files.format(name), self._letters(name, found)) for name, found in chain.letters().items()}
        self.reading.end(counters)
        wake, ends, taken = chain.next_tick(), self.reading.ends, self.reading.taken
        self.epoch = 0
        made = [
            Report(
                node.id,
                chain.instance,
                self.attempt,
                counters[node.id],
                consumed=consumed,
                watermarks=chain.progress.partitions(node.id),
                idle=chain.idling.stored(node.id, chain.progress),
                floor=chain.progress.minimum if chain.graph.idles and not chain.reads else None,
                next_tick=None if wake is None else microseconds(wake),
                troubles=_troubles(node.id, chain.instance, chain.acks(node.id)),
                acked=_acked(chain.acks(node.id)),
                again=tuple(self.reading.again.get(node.id, ())),
                ends=ends.get(node.id, {}),
                taken=taken.get(node.id),
            )
            for node in chain.nodes
        ]

        def write() -> tuple[Report, ...]:
            if self.follows:
                self.reading.sync(ends)
            for name, save in captured.items():
                with Blame.of_state(chain.graph, name).blaming(), self._naming:
                    self.refs[name] = save(self.refs.get(name, ()))
            synced = {name: sync() for name, sync in staged.items()}
            dead = DeadLetters(self._disk, Path(self._work.folder))
            kept = {name: dead.stage(path, found) for name, (path, found) in letters.items()}
            return tuple(
                msgspec.structs.replace(
                    one,
                    state=self.refs.get(one.component, ()) if one.component in self.formats else (),
                    staged=synced.get(one.component),
                    letters=kept.get(one.component),
                )
                for one in made
            )

        return write

    def counted(self) -> list[Counts]:
        """The counters of an epoch that is not finished."""
        if self.epoch == 0 or not self._counts:
            return []
        found = self.chain.counters()
        return [Counts.of(name, self.chain.instance, broken_off(counters)) for name, counters in found.items()]

    def discard(self) -> None:
        """Close open files; they count only if a report names them."""
        for staging in self._stagings.values():
            staging.discard()

    def _claim(self, sink: str) -> bool:
        """Under at-most-once: the first attempt at an epoch writes, and no other."""
        if not self.chain.graph.promise.at_most_once or self.follows:  # in live mode an epoch has one attempt
            return True
        folder = Path(self._work.folder)
        path = claim_path(folder, self.epoch, sink, self.chain.instance)
        self._disk.make_folder(path.parent)
        try:
            self._disk.create(path, self.attempt.encode())
        except FileExistsError:
            return False
        # Claims of long ago are removed, but after their plans: an attempt that comes that late finds no plan.
        return self._disk.exists(folder / "checkpoints" / f"{self.epoch:012d}.plan.json")

    def _preview(self, node: Node) -> Callable[[pa.RecordBatch], None] | None:
        if node.isolation is not Isolation.READ_UNCOMMITTED:
            return None
        return partial(node.component.preview, PreviewLabel(self._work.uid, node.id, self._work.fence, self.epoch))

    def _letters(self, component: str, found: list[tuple[Any, str]]) -> list[Letter]:
        number = self.chain.instance
        return [
            Letter(
                letter_id(component, self.epoch, number, place),
                component,
                number,
                self.epoch,
                why,
                1,
                "" if isinstance(event, str) else self.chain.letter_port(component, place),
                to_text(event),
            )
            for place, (event, why) in enumerate(found)
        ]

    def _load(self, rows: RowFormat, files: tuple[FileRef, ...]) -> State:
        state = rows.new_state()
        self._files.load(rows, files, state)
        return state


def _event(node: Node, kind: type[Event], text: str) -> Event:
    try:
        event = from_text(kind, text)
        check_entered(kind, [event])
        return event
    except (msgspec.ValidationError, msgspec.DecodeError, Misfit) as error:
        raise JobFailed(
            "SW-INBOX-EVENT",
            f"an event in the inbox of {node.id} is no longer a {kind.__name__}: {error}. The event: {text[:200]}",
            f"give {kind.__name__} the fields that it had when the event was put there, and start again",
            retryable=False,
        ) from None


def _troubles(component: str, instance: int, acks: Acks | None) -> tuple[Trouble, ...]:
    if acks is None:
        return ()
    failed = [Trouble(root, component, why or "failed", instance) for root, why in acks.failed]
    return (*failed, *(Trouble(root, component, "", instance, count) for root, count in acks.owed.items()))


def _acked(acks: Acks | None) -> tuple[str, ...]:
    return () if acks is None else tuple(acks.acked)


def row_format(graph: Graph, node: Node, groups: int) -> RowFormat:
    """The rows of a component's state: by key and sub-key, or one row per instance."""
    first = node.inputs[0] if node.inputs else None
    event = node.gives if first is None else graph[first.node].emits(first.channel)
    assert event is not None and node.keeps is not None
    kind = None
    if isinstance(node.component, TableOperator):
        kind = StateKind.TABLE
    elif node.key is not None and hasattr(node.component, "apply_batch"):
        kind = StateKind.COLUMNS
    return RowFormat(node.id, event, node.key, node.keeps, groups, node.sub_key, kind)
