"""Lag: how much input there is that no completed checkpoint has read.

The driver reads the end of each source about once a second, while it plans, and records it in ``history.sqlite``. Readers
(`status`, metrics) compare that with the position of the newest completed checkpoint, so an idle job shows no lag, and a job that
stopped shows the lag that it was stopped with. Samples of both over time show how fast input comes, and how fast it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from streamwork.components import Position
from streamwork.epoch.slices import Begins
from streamwork.job import Graph
from streamwork.world import Clock

READ_SECONDS = 1.0
SAMPLE_SECONDS = 10.0
"""How often, in seconds, a source is sampled that does not change."""


class InputEnd(msgspec.Struct, frozen=True):
    """Where the input of one source partition ended when the driver last read it."""

    source: str
    partition: str
    begin: int  # where reading begins, if no checkpoint has read from it yet
    end: int
    unit: str
    at: float  # seconds since 1970


class Lag(msgspec.Struct, frozen=True):
    """How far one source is behind its input, in its unit."""

    unit: str
    total: int
    partitions: dict[str, int]
    at: float  # when its end was last seen to move, in seconds since 1970


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """How much input one source had, and how much of it was read, at one moment. Both are sums of offsets.

    Read as a row of a table, because there are many.
    """

    source: str
    at: float  # seconds since 1970
    end: int
    read: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.read)


class EndsRecorder(Protocol):
    def input_ends(self, ends: Sequence[InputEnd], samples: Sequence[Sample] = ()) -> None:
        """Record where input ends. Never raises."""


class InputEnds:
    """Reads the ends of all sources with offsets, once a second and when a job catches up, and records those that moved."""

    def __init__(self, graph: Graph, clock: Clock, recorder: EndsRecorder) -> None:
        self._graph = graph
        self._clock = clock
        self._recorder = recorder
        self._read_at = float("-inf")
        self._caught_up = False
        self._known: dict[str, int] = {}
        self._sampled: dict[str, Sample] = {}

    def update(self, start: Position, planned: Position, begins: Begins) -> None:
        """`start` is where the next checkpoint reads from, by partition `begins`; `planned` is how far it will read."""
        now, catches_up = self._clock.monotonic(), planned == start and not self._caught_up
        self._caught_up = planned == start
        if now < self._read_at + READ_SECONDS and not catches_up:
            return
        self._read_at = now
        moved: list[InputEnd] = []
        samples: list[Sample] = []
        for node in self._graph.planned:
            mine = begins[node.id]
            known = node.component.known_ends(mine)
            ends = [known.get(one, planned.get(f"{node.id}/{one}", read)) for one, read in mine.items()]
            samples += self._news(Sample(node.id, self._clock.now(), sum(ends), sum(mine.values())))
            for partition, read in mine.items():
                name = f"{node.id}/{partition}"
                end = known.get(partition, planned.get(name, read))
                if self._known.get(name) != end:
                    self._known[name] = end
                    moved.append(InputEnd(node.id, partition, read, end, node.component.unit, self._clock.now()))
        if moved or samples:
            self._recorder.input_ends(moved, samples)

    def _news(self, sample: Sample) -> list[Sample]:
        """The sample, if it differs from the last one, or that is long ago."""
        last = self._sampled.get(sample.source)
        if last and (last.end, last.read) == (sample.end, sample.read) and sample.at < last.at + SAMPLE_SECONDS:
            return []
        self._sampled[sample.source] = sample
        return [sample]


def lags(ends: Sequence[InputEnd], completed: Position) -> Mapping[str, Lag]:
    """By source."""
    found: dict[str, Lag] = {}
    for one in ends:
        behind = max(0, one.end - completed.get(f"{one.source}/{one.partition}", one.begin))
        before = found.get(one.source, Lag(one.unit, 0, {}, 0.0))
        found[one.source] = Lag(
            one.unit, before.total + behind, {**before.partitions, one.partition: behind}, max(before.at, one.at)
        )
    return found
