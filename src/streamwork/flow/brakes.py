"""Brakes: which sources stop while channels are full, under the policy `sources`.

A full channel stops the source instance that sends to it, and every source of the chains before its sender. It does not stop the
other sources that its receiver reads from:

    1  an input whose checkpoint event has come is blocked until the event has come on all inputs (`flow.dispatcher`)
    2  so its channel may fill up while its receiver waits for the checkpoint event of another input
    3  the sender of the full channel has passed that checkpoint event on, so every source before it has sent it
    4  a source that has not sent it yet is before another input, and goes on

If sources of 4 were stopped too, the checkpoint event would never come, and the channel would never have room again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from streamwork.flow.gauge import Gauge
from streamwork.flow.wiring import Place
from streamwork.job import Layout
from streamwork.job.backpressure import Backpressure


class Brakes:
    """Of the instances of one process."""

    def __init__(self, layout: Layout, gauges: Mapping[tuple[Place, Place], Gauge]) -> None:
        """`gauges`, by sender and receiver, are those of the channels that the instances send to."""
        self._layout = layout
        self._gauges = [
            (sender, gauge) for (sender, _), gauge in gauges.items() if gauge.policy is Backpressure.SOURCES
        ]
        self._before: dict[Place, list[Gauge]] = {}

    def holds(self, source: Place) -> bool:
        """True if this instance of a source is to read nothing."""
        if (mine := self._before.get(source)) is None:
            behind = self._layout.behind[source[0]]
            mine = self._before[source] = [
                gauge for sender, gauge in self._gauges if sender == source or sender[0] in behind
            ]
        return any(gauge.stops_sources for gauge in mine)

    def full_chains(self) -> set[int]:
        """The chains of which an instance here sends to a full channel."""
        return {sender[0] for sender, gauge in self._gauges if gauge.stops_sources}


class BrakeFiles:
    """What the tasks of a gang know of each other's brakes: a file for each task, with one byte for each chain.

    A byte is 1 while an instance of this chain, in this task, sends to a channel that is full and stops sources. Where no source is
    in a chain before a sending one, there are no files.
    """

    def __init__(self, layout: Layout, folder: Path, task: int, tasks: int) -> None:
        chains = layout.chains
        sends = [bool(layout.downstream[chain]) for chain in range(len(chains))]
        policies = layout.policies
        stops = [
            sends[chain] and any(policies[after] is Backpressure.SOURCES for after in layout.downstream[chain])
            for chain in range(len(chains))
        ]
        self._behind = [
            [after for after in layout.behind[chain] if stops[after]] if one.is_source else []
            for chain, one in enumerate(chains)
        ]
        needed = tasks > 1 and any(self._behind)
        self._others = [folder / f"brakes-{other}" for other in range(tasks) if other != task] if needed else []
        self._path = folder / f"brakes-{task}" if needed else None
        self._mine: int | None = None
        self._open: dict[Path, int] = {}
        self._count = len(chains)
        self._written = bytes(self._count)
        self._held: set[int] = set()  # chains of sources that other tasks stop

    def write(self, full: set[int]) -> None:
        """The chains here that send to a full channel."""
        if self._path is None:
            return
        found = bytes(chain in full for chain in range(self._count))
        if found != self._written:
            if self._mine is None:
                self._mine = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
            os.pwrite(self._mine, found, 0)
            self._written = found

    def read(self) -> None:
        """What the other tasks have written. A task that has written nothing stops no source."""
        full: set[int] = set()
        for path in self._others:
            if (descriptor := self._open.get(path)) is None:
                try:
                    descriptor = self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    continue
            full.update(chain for chain, byte in enumerate(os.pread(descriptor, self._count, 0)) if byte)
        self._held = {chain for chain, behind in enumerate(self._behind) if full.intersection(behind)}

    def holds(self, source: Place) -> bool:
        return source[0] in self._held

    def close(self) -> None:
        for descriptor in [*self._open.values(), *([] if self._mine is None else [self._mine])]:
            os.close(descriptor)
        self._open, self._mine = {}, None
