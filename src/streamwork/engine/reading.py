"""Reads the sources of one instance: the slices of an epoch, or all the time.

read(work)      the slices that an epoch names, to their ends
follow(work)    what comes, until the epoch is closed (live mode)
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from streamwork.components import OffsetSource, Slice
from streamwork.components.columns import as_events
from streamwork.components.source import source_changed
from streamwork.delivery import Inbox
from streamwork.delivery.text import to_text
from streamwork.engine.adaptive_batch import AdaptiveBatch
from streamwork.engine.assignment import Assignment
from streamwork.engine.chain import Chain
from streamwork.engine.extent import Extent, Extents
from streamwork.engine.inlet import gathered, takes_columns
from streamwork.engine.look import Look
from streamwork.engine.steps.batch_steps import ROWS
from streamwork.engine.steps.operator_steps import SourceStep
from streamwork.errors import StreamworkError
from streamwork.world import Disk, FileRef

Read = Callable[[str, int, int], Iterator[Slice]]  # as `OffsetSource.read`
MOST_EVENTS = 8_192
"""Maximum events of a partition that `follow` reads in one piece. Where columns are gathered it is `ROWS`."""


class _Range(NamedTuple):
    """A piece that was read: the number of its first event in the epoch, and its offsets."""

    first: int
    start: int
    end: int


class Claim(Protocol):
    """Under at-most-once, all the time: makes durable how far a partition may have been read, before it is."""

    def reach(self, partition: str, end: int) -> None: ...


class Reading:
    """What it has read belongs to the epoch that `begin` names, until the next call of it."""

    def __init__(self, chain: Chain, disk: Disk, folder: Path, clock: Callable[[], float]) -> None:
        self.readers: Mapping[str, Read] = {}  # of sources whose slices the host brings
        self.taken: dict[str, FileRef] = {}  # what sources without offsets gave in this epoch
        self.ends: dict[str, dict[str, int]] = {}  # by source and partition: ends that are known by report
        self.again: dict[str, list[int]] = {}  # by source: the roots of events that were replayed at once
        self.claim: Claim | None = None
        self.is_between = True  # of `follow`: the next step may close the epoch, without an event before
        self._ranges_read: dict[
            str, list[_Range]
        ] = {}  # under acknowledging, by source/partition: what `follow` has read
        self._extents: Extents = {}
        self._continues = False
        self._at: dict[str, dict[str, int]] = {}  # by source and partition: where the last epoch ended, by report
        self._until: dict[str, dict[str, int]] = {}  # offsets that are not read beyond
        self._recognised: set[str] = set()
        self._chain = chain
        self._disk = disk
        self._folder = folder
        self._clock = clock
        self._given: dict[str, list[Any]] = {}  # under acknowledging: the events of sources without offsets
        self._stem = ""
        self._adaptive = chain.adaptive = AdaptiveBatch(clock) if chain.graph.previews else None
        self._others: dict[str, OffsetSource[Any]] = {}  # for another thread
        self._looks: dict[str, Look] = {}  # of `follow`, by source
        self._first: dict[
            str, str
        ] = {}  # of `follow`, by source: the partition that is read first, so that all have their turn

    def begin(self, work: Assignment, stem: str) -> None:
        """Begin an epoch. `stem` is the beginning of the names of its files."""
        self.taken, self.ends, self._extents, self._continues = {}, {}, work.extents, work.continues
        self.again, self._ranges_read, self._given = {}, {}, {}
        self._stem = stem

    def end(self, counters: Mapping[str, Mapping[str, int]]) -> None:
        """The epoch ends, with these counters. The offsets of a source without any count the events that were read."""
        for name in self._chain.polled.keys() & self._extents.keys():
            read = counters[name]["processed"] - counters[name]["replayed"]
            self.ends[name] = {partition: self._start(name, partition) + read for partition in self._extents[name]}
        for name, ends in self.ends.items():
            self._at.setdefault(name, {}).update(ends)

    def _start(self, source: str, partition: str) -> int:
        """Where the epoch begins to read a partition."""
        if self._continues and partition in self._at.get(source, {}):
            return self._at[source][partition]
        return self._extents[source][partition].start

    # ---- slices ---------------------------------------------------------------------------------------------------

    def read(self, work: Assignment) -> Iterator[bool]:
        """Pass the slices of all source partitions through the chain, a piece at each step of the iterator."""
        for name, extents in work.extents.items():
            if name in self._chain.polled:
                continue
            source: OffsetSource[Any] = self._chain.graph[name].component
            source.in_columns = self._gathers(name)
            for partition, start, end in self._ranges(name, source, extents):
                if name in self.readers:
                    pieces = self.readers[name](partition, start, end)
                else:
                    pieces = _recognised(name, source, partition, work, source.slices(name, partition, start, end))
                if self._gathers(name):
                    pieces = gathered(pieces)
                for piece in _blamed(name, pieces):
                    for part in self._parts(piece):
                        self._chain.process(name, partition, part)
                        yield True
        for name, step in self._chain.polled.items():
            if name not in work.extents:
                continue
            (extent,) = work.extents[name].values()
            waiting, read = Slice([], 0), extent.start
            for piece in self._polled(step, extent.limit, work.asking):
                piece.move(read)
                read += piece.came
                if self._chain.graph.promise.acknowledges:
                    waiting.add(piece)
                    continue
                for part in self._parts(piece):
                    self._chain.process(name, str(self._chain.instance), part)
                    yield True
            if waiting.events:  # it cannot be read again: it is made durable before it is processed
                inbox = Inbox(self._disk, self._folder)
                self.taken[name] = inbox.write_taken(name, self._stem, [to_text(event) for event in waiting.events])
            if waiting.came:
                self._chain.process(name, str(self._chain.instance), waiting)
                yield True

    def _ranges(
        self, name: str, source: OffsetSource[Any], extents: Mapping[str, Extent]
    ) -> Iterator[tuple[str, int, int]]:
        """Partition, start and end of what is read. By report, this calls the source's `ends`, and notes them."""
        open_ended = {partition: one.start for partition, one in extents.items() if one.end is None}
        if open_ended:
            limit = min(extents[partition].limit for partition in open_ended)
            self.ends[name] = {**open_ended, **source.ends(open_ended, limit)}
            source.sync()  # no reported position is beyond the input
        for partition, extent in extents.items():
            end = self.ends[name][partition] if extent.end is None else extent.end
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
        return self._adaptive is None and takes_columns(self._chain.graph, source)

    def _parts(self, piece: Slice) -> Iterable[Slice]:
        return [piece] if self._adaptive is None else self._adaptive.slices(piece)

    # ---- all the time ---------------------------------------------------------------------------------------------

    def follow(self, work: Assignment, closes: Callable[[], bool]) -> Iterator[bool]:
        """Read what comes, until the epoch `closes`; by plan, at least up to the ends that it names. A source without offsets is
        asked at least once. Each step of the iterator reads a piece; False says that there was nothing.
        """
        offsets = {name: dict(extents) for name, extents in work.extents.items() if name not in self._chain.polled}
        at = {name: {part: self._start(name, part) for part in parts} for name, parts in offsets.items()}
        planned = [(name, part, extent.end) for name, parts in offsets.items() for part, extent in parts.items()]
        polled = {name: step for name, step in self._chain.polled.items() if name in work.extents}
        asked: set[str] = set()
        begun: set[str] = set()
        while True:
            closing, read = closes(), False
            self.is_between = False
            for name, extents in offsets.items():
                pieces, began = self._next(name, extents, at[name], closing), self._clock()
                for partition, start, end in pieces:
                    if not closing and closes():  # the barrier does not wait for other partitions
                        self._first[name] = partition
                        break
                    yield from self._follow(work, name, partition, start, end)
                    at[name][partition], read = end, True
                self._took(name, pieces, len(extents), self._clock() - began)
            for name, step in polled.items():
                if name not in asked and not (closing and name in begun):
                    begun.add(name)
                    for _ in self._poll(name, step, asked):
                        read = True
                        yield True
            left = any(end is not None and end > at[name][part] for name, part, end in planned)
            self.is_between = not left
            if closing and not left:
                break
            if not read:
                yield False
        self.ends |= {name: at[name] for name, parts in offsets.items() if all(e.end is None for e in parts.values())}

    def _next(
        self, name: str, extents: Mapping[str, Extent], at: Mapping[str, int], closing: bool
    ) -> list[tuple[str, int, int]]:
        """Partition, start and end of what is read next. A slice by plan is read to its end, also while the epoch closes."""
        found: list[tuple[str, int, int]] = []
        asked = {part: at[part] for part, one in extents.items() if one.end is None} if not closing else {}
        source: OffsetSource[Any] = self._chain.graph[name].component
        most = self._looks.setdefault(name, Look()).share(len(extents), self._most(name))
        ends = source.available(asked, most) if asked else {}
        for partition, extent in extents.items():
            if extent.end is not None:
                end = min(extent.end, source.ends({partition: at[partition]}, most)[partition])
            else:
                end = ends.get(partition, at[partition])
                end = end if extent.until is None else min(end, max(extent.until, at[partition]))
            if end > at[partition]:
                found.append((partition, at[partition], end))
        if (first := self._first.pop(name, "")) in extents:
            order = list(extents)
            at_place = order.index(first)
            found.sort(key=lambda one: (order.index(one[0]) - at_place) % len(order))
        return found

    def _most(self, name: str) -> int:
        return ROWS if self._gathers(name) else MOST_EVENTS

    def _took(self, name: str, pieces: list[tuple[str, int, int]], partitions: int, seconds: float) -> None:
        most = self._most(name)
        share = self._looks[name].share(partitions, most)
        was_full = any(end - start >= share for _, start, end in pieces)
        self._looks[name].took(seconds, was_full, partitions * most)

    def _follow(self, work: Assignment, name: str, partition: str, start: int, end: int) -> Iterator[bool]:
        source: OffsetSource[Any] = self._chain.graph[name].component
        if self.claim is not None:
            self.claim.reach(f"{name}/{partition}", end)
        if self._chain.graph.promise.acknowledges:
            number = self._chain.read_so_far(name, partition)
            self._ranges_read.setdefault(f"{name}/{partition}", []).append(_Range(number, start, end))
        source.in_columns = self._gathers(name)
        pieces = source.slices(name, partition, start, end)
        if (place := f"{name}/{partition}") not in self._recognised:
            self._recognised.add(place)
            pieces = _recognised(name, source, partition, work, pieces)
        if self._gathers(name):
            pieces = gathered(pieces)
        for piece in _blamed(name, pieces):
            for part in self._parts(piece):
                self._chain.process(name, partition, part)
                yield True

    def _poll(self, name: str, step: SourceStep, asked: set[str]) -> Iterator[bool]:
        """One call of a source without offsets. Under acknowledging it is called until it gives something: then that is made
        durable, and it is called again in the next epoch.
        """
        piece = step.poll()
        if not piece.came:
            return
        if self._chain.graph.promise.acknowledges:
            asked.add(name)
            self._given[name] = list(piece.events)
            if piece.events:
                inbox = Inbox(self._disk, self._folder)
                self.taken[name] = inbox.write_taken(name, self._stem, [to_text(event) for event in piece.events])
        read = self._chain.counters()[name]["processed"]
        piece.move(self._start(name, str(self._chain.instance)) + read)
        for part in self._parts(piece):
            self._chain.process(name, str(self._chain.instance), part)
            yield True

    def partitions(self, source: str) -> Collection[str]:
        """Those of a source that are read in the epoch under way."""
        return self._extents.get(source, {})

    def read_again(self, name: str, partition: str, number: int) -> Any:
        """An event of the epoch under way: the one of this number among those of its partition."""
        if name in self._given:
            return self._given[name][number]
        ranges = self._ranges_read[f"{name}/{partition}"]
        found = ranges[bisect_right(ranges, number, key=lambda one: one.first) - 1]
        source: OffsetSource[Any] = self._chain.graph[name].component
        at = found.first
        for piece in source.slices(name, partition, found.start, found.end):
            if number < at + len(piece.given):
                return as_events(piece.given[number - at : number - at + 1])[0]
            at += len(piece.given)
        raise AssertionError(f"{name}/{partition} has no event {number} between {found.start} and {found.end}")

    def sync(self, ends: Mapping[str, Mapping[str, int]]) -> None:
        """Make the input durable that was read by report up to these ends: no reported position is beyond it. May be called from
        another thread: the sources that are read here are not used.
        """
        for name, mine in ends.items():
            if name in self._chain.polled:
                continue
            if name not in self._others:
                self._others[name] = copy.copy(self._chain.graph[name].component)
            self._others[name].ends(mine, 1)
            self._others[name].sync()


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
