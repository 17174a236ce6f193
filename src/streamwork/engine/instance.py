"""One instance of a chain at work: it owns the chain, the states, and the files that they are written to.

begin(epoch)   a place for the outputs of this epoch; operators are set up before the first event
...            events are passed to the chain
finish()       changed records and staged outputs are durable; the report names them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from streamwork.components import OffsetSource, Slice
from streamwork.engine.chain import Chain, from_microseconds, microseconds
from streamwork.engine.report import Report
from streamwork.engine.staging import Staging
from streamwork.engine.work import Work
from streamwork.job import Graph, Node
from streamwork.state import FileRef, State, StateFiles
from streamwork.state.rows import RowFormat
from streamwork.world import Disk

Restore = Callable[[RowFormat, tuple[FileRef, ...]], State]
Read = Callable[[str, int, int], Iterator[Slice]]  # as `OffsetSource.read`


class Instance:
    def __init__(self, chain: Chain, disk: Disk, work: Work, restore: Restore | None = None) -> None:
        """Restore the states that `work` names: from their files, or as `restore` does it."""
        self.chain = chain
        self.readers: Mapping[str, Read] = {}  # of sources whose slices the host brings
        self.refs = dict(work.states)  # component -> the files that hold its state
        self._disk = disk
        self._work = work
        self.attempt = ""
        self._files = StateFiles(disk, Path(work.folder))
        self._formats = {
            node.id: row_format(chain.graph, node, work.groups) for node in chain.nodes if node.keeps is not None
        }
        restore = restore or self._load
        self.states = {name: restore(rows, self.refs.get(name, ())) for name, rows in self._formats.items()}
        self._stagings: dict[str, Staging] = {}
        self.epoch = 0  # 0: none is under way
        self.chain.watermarks = {name: _time(at) for name, at in work.watermarks.items()}

    def adopt(self, states: dict[str, tuple[FileRef, ...]]) -> None:
        """Name the files as the driver does: it may have put a snapshot in the place of many of them."""
        for name, chain in states.items():
            mine = self.refs.get(name, ())
            last = next((ref for ref in reversed(chain) if not ref.is_snapshot), None)
            if last in mine:
                self.refs[name] = (*chain, *mine[mine.index(last) + 1 :])

    def begin(self, epoch: int, attempt: str) -> None:
        """Begin an epoch; `attempt` is a name that was never used before."""
        self.epoch, self.attempt = epoch, attempt
        stem = f"{epoch:012d}-{self._work.fence}-{attempt}-{self.chain.instance}"
        sinks = [node for node in self.chain.nodes if node in self.chain.graph.sinks]
        self._stagings = {
            node.id: Staging(
                self._disk, Path(self._work.folder), f"outputs/{node.id}/{stem}.arrow", node.takes, node.id
            )
            for node in sinks
            if node.takes is not None
        }
        self.chain.open(self.states, self._stagings)

    def tick(self, ticks: tuple[int, ...]) -> None:
        for tick in ticks:
            self.chain.tick(from_microseconds(tick))

    def read(self, ranges: dict[str, dict[str, tuple[int, int]]]) -> Iterator[None]:
        """Pass the slices of all source partitions through the chain, a piece at each step of the iterator."""
        for name, partitions in ranges.items():
            source: OffsetSource[Any] = self.chain.graph[name].component
            pieces = self.readers.get(name, source.read)
            for partition, (start, end) in partitions.items():
                for piece in pieces(partition, start, end):
                    self.chain.process(name, partition, piece)
                    yield
        for name, step in self.chain.polled.items():
            read, most = 0, self.chain.graph[name].component.max_events
            while read < most and (events := step.poll()):
                self.chain.process(name, str(self.chain.instance), Slice(events))
                read += len(events)
                yield

    def finish(self, consumed: tuple[str, ...] = ()) -> tuple[Report, ...]:
        """The checkpoint of this epoch: between two events, for every component of the chain alike."""
        chain, stem = self.chain, f"{self._work.fence}-{self.attempt}"
        counters = chain.checkpoint()
        for name, rows in self._formats.items():
            before = self.refs.get(name, ())
            self.refs[name] = self._files.save(
                rows, self.states[name], before, chain.instance, self.epoch, stem, self._work.memory
            )
        staged = {name: staging.finish() for name, staging in self._stagings.items()}
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
                watermarks=_watermarks(chain, node),
                next_tick=None if wake is None else microseconds(wake),
            )
            for node in chain.nodes
        )

    def discard(self) -> None:
        """Let go of open files; what they hold counts for nothing unless a report names it."""
        for staging in self._stagings.values():
            staging.discard()

    def _load(self, rows: RowFormat, chain: tuple[FileRef, ...]) -> State:
        state = rows.new_state()
        self._files.load(rows, chain, state)
        return state


def _watermarks(chain: Chain, node: Node) -> dict[str, int]:
    mine = ((name.partition("/"), at) for name, at in chain.watermarks.items())
    return {part: microseconds(at) for (source, _, part), at in mine if source == node.id and at is not None}


def _time(value: int | None) -> datetime | None:
    return None if value is None else from_microseconds(value)


def row_format(graph: Graph, node: Node, groups: int) -> RowFormat:
    """The rows of a component's state: by key, or one row per instance."""
    first = node.inputs[0] if node.inputs else None
    event = node.gives if first is None else graph[first.node].emits(first.channel)
    assert event is not None and node.keeps is not None
    return RowFormat(node.id, event, node.key, node.keeps, groups)
