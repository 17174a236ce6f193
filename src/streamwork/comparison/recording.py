"""What polled sources give: it is recorded once, for version A, and every run reads the recording.

A source without offsets cannot give a certain slice again. But one that declares ``replayable = True`` goes on from its record of
the savepoint without an effect on the job: it does so after every crash. So it is polled in this process, from there on, and
what it gives is kept in files of the scratch folder. `Recorded` stands in its place in all runs: with a partition for each
instance, whose offsets count events, as the positions of a polled source do. Watermarks go on in the same way.

A source that is not replayable takes its events from somewhere. Polling it would take them away from the job, so it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamwork.components import Event, OffsetSource, Slice, StatefulSource
from streamwork.components.columns import to_batches
from streamwork.components.schema import arrow_schema
from streamwork.components.times import from_microseconds
from streamwork.engine.instance import row_format
from streamwork.engine.steps.operator_steps import SourceStep
from streamwork.engine.times import BatchTimes
from streamwork.epoch.names import Names
from streamwork.epoch.savepoints.origin import Origin
from streamwork.errors import Refused
from streamwork.job import Graph, Node
from streamwork.state import InstanceState, StateFiles, StateView
from streamwork.world import Clock, RealDisk

PIECE = 10_000
"""Events of a batch in a file, at least."""


class Recorded(OffsetSource[Any]):
    """What the instances of a polled source gave. Before it is recorded it is empty."""

    unit = "events"
    bounded = True

    def __init__(self, event: type[Event], files: Mapping[str, Path], starts: Mapping[str, int]) -> None:
        """`files` and `starts`: by instance, where its events are, and how many it had given before."""
        self.event = event
        self.max_events = PIECE
        self._files = dict(files)
        self._starts = dict(starts)
        self._ends: dict[str, int] = {}

    def partitions(self) -> list[str]:
        return list(self._files)

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        return {name: min(start + limit, self._end(name)) for name, start in starts.items()}

    def has_more(self, ends: Mapping[str, int]) -> bool:
        return any(end < self._end(name) for name, end in ends.items())

    def latest(self, partitions: Sequence[str]) -> Mapping[str, int]:
        return {name: self._end(name) for name in partitions}

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        first, at = self._starts[partition], start
        with pa.memory_map(str(self._files[partition])) as file:
            for batch in pa.ipc.open_stream(file).read_all().slice(start - first, end - start).to_batches():
                yield Slice(batch, at)
                at += batch.num_rows

    def _end(self, partition: str) -> int:
        path = self._files[partition]
        if partition not in self._ends and path.exists():
            with pa.memory_map(str(path)) as file:
                self._ends[partition] = self._starts[partition] + pa.ipc.open_stream(file).read_all().num_rows
        return self._ends.get(partition, self._starts[partition])


@dataclass(frozen=True)
class Moment:
    """The times that a source sees while it is recorded."""

    now: datetime
    checkpoint: int


class Recording:
    """The polled sources of version A from a savepoint on. Refuses those that cannot be polled beside the job."""

    def __init__(self, graph: Graph, origin: Origin, folder: Path, clock: Clock) -> None:
        self._graph = graph
        self._origin = origin.named(Names.of(graph))
        self._folder = folder
        self._clock = clock
        self._nodes = {node.id: node for node in graph.polled}
        for node in graph.polled:
            self._check(node)

    @property
    def sources(self) -> list[str]:
        return list(self._nodes)

    def replaced(self, graph: Graph, origin: Origin) -> tuple[Graph, Origin]:
        """A version that reads the recording, and a savepoint without the records of its polled sources."""
        origin = origin.named(Names.of(graph))
        mine = [node.id for node in graph.polled]
        shared = {node.id for node in self._graph.sources}
        for node in graph.sources:
            if node.id in shared and (node.id in self._nodes) is not (node.id in mine):
                kinds = ("polled", "with offsets") if node.id in self._nodes else ("with offsets", "polled")
                raise _refused(
                    f"source {node.id} is {kinds[0]} in A and {kinds[1]} in B, so they cannot read the same events",
                    "compare versions whose sources are of one kind",
                )
        chains = {name: instances for name, instances in origin.chains.items() if name not in mine}
        nodes = tuple(self._read_from(node) if node.id in mine else node for node in graph.nodes)
        return replace(graph, nodes=nodes), replace(origin, chains=chains)

    def record(self, events: int) -> int:
        """Poll every instance of every source for so many events, or until it gives none. Returns how much was left out: what
        is no event of the declared type, where the source does not fail on it.
        """
        left_out = 0
        for node in self._nodes.values():
            for number, record in enumerate(self._records(node)):
                with pa.ipc.new_stream(self._path(node.id, number), self._schema(node)) as writer:
                    left_out += self._poll(node, number, record, events, writer.write_batch)
        return left_out

    # ---- one source --------------------------------------------------------------------------------------------------------

    def _check(self, node: Node) -> None:
        if not node.component.replayable:
            raise _refused(
                f"source {node.id} of job {self._graph.job} has no offsets to read the same events by, and is not replayable: "
                "polling it here could take events away from the job",
                "declare replayable = True if its record alone decides what comes next; else write the events into a log first, "
                "and read that",
            )
        stored = len(self._origin.chains.get(node.id, {}))
        if stored not in (0, node.parallelism):
            raise _refused(
                f"source {node.id} has {node.parallelism} instances, and {stored} in {self._origin.name}",
                "take a savepoint of the job with its present parallelism, and compare from there",
            )

    def _read_from(self, node: Node) -> Node:
        """A source of a version, with the recording in place of its component. One that only B has reads nothing."""
        assert node.gives is not None
        recorded = self._nodes.get(node.id)
        if recorded is not None and arrow_schema(node.gives) != self._schema(recorded):
            raise _refused(
                f"the events of source {node.id} have other fields in B than in A, and B reads what the source of A gave",
                "compare versions with the same events, and change them in a step behind the source",
            )
        count = node.parallelism if recorded is None else recorded.parallelism
        files = {str(number): self._path(node.id, number) for number in range(count)}
        starts = {name: self._origin.manifest.positions[f"{node.id}/{name}"] for name in files}
        return replace(node, component=Recorded(node.gives, files, starts), keeps=None)

    @staticmethod
    def _schema(node: Node) -> pa.Schema:
        assert node.gives is not None
        return arrow_schema(node.gives)

    def _path(self, source: str, number: int) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / f"{source}-{number}.arrow"

    def _records(self, node: Node) -> list[Any]:
        """By instance: its record in the savepoint, None if it has none."""
        found: dict[int, Any] = {}
        if node.keeps is not None:
            rows = row_format(self._graph, node, self._origin.identity.groups)
            files = StateFiles(RealDisk(), self._origin.folder)
            found = StateView(files, rows, self._origin.chains.get(node.id, {})).records()
        return [found.get(number) for number in range(node.parallelism)]

    def _poll(self, node: Node, number: int, record: Any, events: int, write: Callable[[pa.RecordBatch], None]) -> int:
        """Returns how much was left out."""
        now = from_microseconds(round(self._clock.now() * 1_000_000))
        step = SourceStep(node, number)
        step.instance.folder = self._folder
        step.times = BatchTimes(Moment(now, self._origin.manifest.epoch + 1), node)
        if isinstance(node.component, StatefulSource):
            step.state = InstanceState()
            step.state.record = record
        step.set_up()
        given, left_out, waiting = 0, 0, list[Any]()
        kind = node.gives
        assert kind is not None

        def flush() -> None:
            for batch in to_batches(kind, waiting, node.id):
                write(batch)
            waiting.clear()

        try:
            while given < events and (piece := step.poll()).came:
                waiting += piece.events
                given += len(piece.events)
                left_out += piece.came - len(piece.events)
                if len(waiting) >= PIECE:
                    flush()
            if waiting:
                flush()
        finally:
            step.operator.close()
        return left_out


def _refused(cause: str, action: str) -> Refused:
    return Refused("SW-COMPARE-SOURCE", cause, action)
