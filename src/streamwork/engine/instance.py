"""One instance of a chain at work: it owns the chain, its states, and the files that they are written to.

begin(epoch)   opens places for the outputs of this epoch; operators are set up before the first event
...            events pass the chain
finish()       makes changed records and staged outputs durable; the report names them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.components import Event, OffsetSource, PreviewLabel, Slice
from streamwork.components.columns import check_entered
from streamwork.components.field_types import Misfit
from streamwork.components.source import source_changed
from streamwork.components.table_operator import TableOperator
from streamwork.components.times import from_microseconds, microseconds
from streamwork.delivery import DeadLetters, Inbox, Letter, Trouble
from streamwork.delivery.counts import Counts, broken_off
from streamwork.delivery.letters import letter_id
from streamwork.delivery.retrying import Marks
from streamwork.delivery.text import from_text, to_text
from streamwork.engine.adaptive_batch import AdaptiveBatch
from streamwork.engine.assignment import Assignment
from streamwork.engine.chain import Chain
from streamwork.engine.extent import Extent, Extents
from streamwork.engine.fired import claim_path
from streamwork.engine.inlet import gathered, takes_columns
from streamwork.engine.report import Report
from streamwork.engine.steps.operator_steps import SourceStep
from streamwork.engine.steps.staging import Staging
from streamwork.errors import JobFailed, StreamworkError
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
        chain.adaptive = self._adaptive = AdaptiveBatch(self._clock) if chain.graph.previews else None
        self.readers: Mapping[str, Read] = {}  # of sources whose slices the host brings
        self.refs = dict(work.states)  # component -> the files that hold its state
        self._disk = disk
        self._work = work
        chain.check_keys(work.groups)
        if chain.graph.promise.at_most_once:
            chain.guard_times(disk, Path(work.folder))
        self.attempt = ""
        self._files = StateFiles(disk, Path(work.folder))
        self._formats = {
            node.id: row_format(chain.graph, node, work.groups) for node in chain.nodes if node.keeps is not None
        }
        restore = restore or self._load
        self.states = {name: restore(rows, self.refs.get(name, ())) for name, rows in self._formats.items()}
        self._stagings: dict[str, Staging] = {}
        self._stem = ""
        self._taken: dict[str, FileRef] = {}  # what sources without offsets gave in this epoch
        self._ends: dict[str, dict[str, int]] = {}  # by source and partition: ends that are known by report
        self._extents: Extents = {}  # what the epoch under way reads
        self.epoch = 0  # 0: none is under way
        self.marks: Marks  # of the epoch under way: the events that wait to be retried
        self._counts = False  # True while the chain counts for the epoch under way
        chain.progress = Progress()
        idle = [name for name, one in work.idle.items() if one.idle]
        chain.progress.resume(work.watermarks, idle, work.floor)
        chain.idling.resume(work.watermarks, work.idle)

    def adopt(self, states: dict[str, tuple[FileRef, ...]]) -> None:
        """Name the files as the driver does: it may have put a snapshot in the place of many of them."""
        for name, files in states.items():
            mine = self.refs.get(name, ())
            last = next((ref for ref in reversed(files) if not is_snapshot(ref)), None)
            if last in mine:
                self.refs[name] = (*files, *(ref for ref in mine[mine.index(last) + 1 :] if ref not in files))

    def begin(self, work: Assignment, attempt: str) -> None:
        """Begin an epoch; `attempt` is a name that was never used before."""
        self.epoch, self.attempt = work.epoch, attempt
        self._stem = f"{work.epoch:012d}-{work.fence}-{attempt}-{self.chain.instance}"
        self._taken, self._ends, self._extents = {}, {}, work.extents
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
        self.chain.now = from_microseconds(now)
        self.marks = Marks(self._disk, Path(work.folder), work.fence, work.epoch, self._wall)
        self.chain.open(self.states, self._stagings, self._claim, self.marks)
        self._counts = True
        if work.parent is not None:
            self.chain.drop_due(work.parent, work.epoch, attempt)
        if self.chain.graph.promise.acknowledges:
            self.chain.track(work.lanes, work.event_ids(), bool(work.retried))

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

    def read(self, work: Assignment) -> Iterator[None]:
        """Pass the slices of all source partitions through the chain, a piece at each step of the iterator."""
        for name, extents in work.extents.items():
            if name in self.chain.polled:
                continue
            source: OffsetSource[Any] = self.chain.graph[name].component
            for partition, start, end in self._ranges(name, source, extents):
                if name in self.readers:
                    pieces = self.readers[name](partition, start, end)
                else:
                    pieces = _recognised(name, source, partition, work, source.read(partition, start, end))
                if self._gathers(name):
                    pieces = gathered(pieces)
                for piece in _blamed(name, pieces):
                    for part in self._parts(piece):
                        self.chain.process(name, partition, part)
                        yield
        for name, step in self.chain.polled.items():
            if name not in work.extents:
                continue
            (extent,) = work.extents[name].values()
            waiting, read = Slice([], 0), extent.start
            for piece in self._polled(step, extent.limit, work.asking):
                piece.move(read)
                read += piece.came
                if self.chain.graph.promise.acknowledges:
                    waiting.add(piece)
                    continue
                for part in self._parts(piece):
                    self.chain.process(name, str(self.chain.instance), part)
                    yield
            if waiting.events:  # it cannot be read again: it is made durable before it is processed
                inbox = Inbox(self._disk, Path(self._work.folder))
                self._taken[name] = inbox.write_taken(name, self._stem, [to_text(event) for event in waiting.events])
            if waiting.came:
                self.chain.process(name, str(self.chain.instance), waiting)
                yield

    def _ranges(
        self, name: str, source: OffsetSource[Any], extents: Mapping[str, Extent]
    ) -> Iterator[tuple[str, int, int]]:
        """Partition, start and end of what is read. By report, this calls the source's `ends`, and notes them."""
        open_ended = {partition: one.start for partition, one in extents.items() if one.end is None}
        if open_ended:
            limit = min(extents[partition].limit for partition in open_ended)
            self._ends[name] = {**open_ended, **source.ends(open_ended, limit)}
            source.sync()  # no reported position is beyond the input
        for partition, extent in extents.items():
            end = self._ends[name][partition] if extent.end is None else extent.end
            if end > extent.start:
                yield partition, extent.start, end

    def _polled(self, step: SourceStep, limit: int, seconds: float) -> Iterator[Slice]:
        """The events of a source until there are `limit`, its time has passed, or it emits nothing."""
        read, until = 0, self._clock() + seconds
        while read < limit and (count := (piece := step.poll()).came):
            read += count
            yield piece
            if self._clock() >= until:
                return

    def _gathers(self, source: str) -> bool:
        """True if slices are joined: for operators on columns, unless rows are to be visible early."""
        return self._adaptive is None and takes_columns(self.chain.graph, source)

    def _parts(self, piece: Slice) -> Iterable[Slice]:
        return [piece] if self._adaptive is None else self._adaptive.slices(piece)

    def finish(self, consumed: tuple[str, ...] = ()) -> tuple[Report, ...]:
        """The checkpoint of this epoch: between two events, for every component of the chain alike."""
        chain, stem = self.chain, f"{self._work.fence}-{self.attempt}"
        counters = chain.checkpoint()
        for name, rows in self._formats.items():
            before = self.refs.get(name, ())
            with Blame.of_state(chain.graph, name).blaming():
                self.refs[name] = self._files.save(
                    rows, self.states[name], before, chain.instance, self.epoch, stem, self._work.memory
                )
        staged = {name: staging.finish() for name, staging in self._stagings.items()}
        letters = {name: self._stage_letters(name, found) for name, found in chain.letters().items()}
        for name in chain.polled.keys() & self._extents.keys():  # their offsets count the events that were read
            read = counters[name]["processed"] - counters[name]["replayed"]
            self._ends[name] = {partition: one.start + read for partition, one in self._extents[name].items()}
        wake = chain.next_tick()
        self.epoch = 0
        return tuple(
            Report(
                node.id,
                chain.instance,
                self.attempt,
                counters[node.id],
                self.refs.get(node.id, ()) if node.keeps is not None else (),
                staged.get(node.id),
                consumed,
                watermarks=chain.progress.partitions(node.id),
                idle=chain.idling.stored(node.id, chain.progress),
                floor=chain.progress.minimum if chain.graph.idles and not chain.reads else None,
                next_tick=None if wake is None else microseconds(wake),
                letters=letters.get(node.id),
                troubles=_troubles(node.id, chain.instance, chain.acks(node.id)),
                acked=_acked(chain.acks(node.id)),
                ends=self._ends.get(node.id, {}),
                taken=self._taken.get(node.id),
            )
            for node in chain.nodes
        )

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
        if not self.chain.graph.promise.at_most_once:
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

    def _stage_letters(self, component: str, found: list[tuple[Any, str]]) -> FileRef:
        number = self.chain.instance
        letters = [
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
        dead = DeadLetters(self._disk, Path(self._work.folder))
        return dead.stage(f"outputs/{component}/{self._stem}.letters.parquet", letters)

    def _load(self, rows: RowFormat, files: tuple[FileRef, ...]) -> State:
        state = rows.new_state()
        self._files.load(rows, files, state)
        return state


def _recognised(
    name: str, source: OffsetSource[Any], partition: str, work: Assignment, pieces: Iterator[Slice]
) -> Iterator[Slice]:
    """The pieces, if they are of the input that was planned.

    Checked when the first piece is there, before it is processed. By then the file is open: one that takes its place later is
    not read, and one that has taken it before is not recognised.
    """
    mark = work.marks.get(f"{name}/{partition}")
    for number, piece in enumerate(pieces):
        if number == 0 and mark is not None and not source.recognises(partition, mark):
            raise source_changed(name, partition)
        yield piece


def _blamed(source: str, pieces: Iterator[Slice]) -> Iterator[Slice]:
    """Errors in its input are subject to the `on_error` of the source."""
    try:
        yield from pieces
    except StreamworkError as error:
        error.component = source
        raise


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
