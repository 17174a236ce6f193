"""One attempt at one epoch by one instance: restore, read, process, write, report.

The numbers are those of the epoch's steps (`streamwork.epoch.driver`); an attempt is steps 2 and 3.

    2a  the state of the epoch's start: from the worker's cache, else from its files
    2b  the slice of every source partition goes through the chain
    2c  changed records and staged outputs are written under names that hold fence and attempt, and made durable
    3   the report names these files; only a manifest that repeats it makes them count

A crash or an error anywhere before 3 leaves files that nobody names. The cache is empty-handed then, because its
entry was
taken out at 2a and goes back only after 2c.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from streamwork.components import OffsetSource
from streamwork.engine.chain import Chain, from_microseconds, microseconds
from streamwork.engine.report import Failure, Report, Reports
from streamwork.engine.staging import Staging
from streamwork.errors import StreamworkError
from streamwork.job import Graph, Node
from streamwork.state import FileRef, State, StateCache, StateFiles
from streamwork.state.rows import RowFormat
from streamwork.world import Disk

IO_ACTION = "make room, or bring the file or folder back, and start again: the last checkpoint is good"


class Work(msgspec.Struct, frozen=True):
    """What one instance needs to know to compute its part of an epoch."""

    instance: int
    uid: str
    folder: str
    groups: int
    epoch: int
    fence: int
    ranges: dict[str, dict[str, tuple[int, int]]]  # source -> partition -> from, to
    states: dict[str, tuple[FileRef, ...]]  # component -> the chain of files at `from`
    watermarks: dict[str, int | None] = {}  # source/partition -> event time so far; None where nothing has come yet
    ticks: tuple[int, ...] = ()


class Worker:
    """A process that computes attempts, one after another, and remembers what it can use again."""

    def __init__(self, disk: Disk, new_attempt: Callable[[], str] = lambda: secrets.token_hex(4)) -> None:
        self._disk = disk
        self._new_attempt = new_attempt
        self._states = StateCache()
        self._chains: dict[tuple[str, int], Chain] = {}

    def run(self, graph: Graph, graph_token: str, work: Work) -> Reports:
        """One attempt. An error that a person must see comes back as data. `graph_token` names the very objects in
        `graph`.
        """
        chain = self._chains.pop((graph_token, work.instance), None)
        try:
            if chain is None:
                chain = Chain(graph, instance=work.instance)
            reports = self._attempt(chain, work)
        except StreamworkError as error:
            error.cause += f" [job {graph.job}, epoch {work.epoch}]"
            return Reports(failure=Failure.of(error))
        except OSError as error:  # a full disk, a missing file: trouble of the surroundings, not of the code
            cause = f"{error} [job {graph.job}, epoch {work.epoch}]"
            return Reports(failure=Failure("SW-IO-FAILED", cause, IO_ACTION, exit_code=1))
        self._chains[graph_token, work.instance] = chain
        return Reports(reports)

    def close(self) -> None:
        for chain in self._chains.values():
            chain.close()
        self._chains.clear()

    def _attempt(self, chain: Chain, work: Work) -> tuple[Report, ...]:
        graph, folder, attempt = chain.graph, Path(work.folder), self._new_attempt()
        stem = f"{work.fence}-{attempt}"
        files = StateFiles(self._disk, folder)
        formats = {node.id: row_format(graph, node, work.groups) for node in graph.stateful}

        states = {name: self._restore(files, rows, work, chain.instance) for name, rows in formats.items()}  # 2a
        stagings = {
            node.id: Staging(
                self._disk,
                folder,
                f"outputs/{node.id}/{work.epoch:012d}-{stem}-{chain.instance}.arrow",
                node.takes,
                node.id,
            )
            for node in graph.sinks
            if node.takes is not None
        }
        try:
            chain.open(states, stagings, {name: _time(at) for name, at in work.watermarks.items()})
            for tick in work.ticks:  # 2b
                chain.tick(from_microseconds(tick))
            for name, partitions in work.ranges.items():
                source: OffsetSource[Any] = graph[name].component
                for partition, (start, end) in partitions.items():
                    for piece in source.read(partition, start, end):
                        chain.process(name, partition, piece)
            counters = chain.checkpoint()
            kept = {  # 2c
                name: files.save(rows, states[name], work.states.get(name, ()), chain.instance, work.epoch, stem)
                for name, rows in formats.items()
            }
            staged = {name: staging.finish() for name, staging in stagings.items()}
        finally:
            for staging in stagings.values():
                staging.discard()
        for name, state in states.items():
            self._states.put((work.uid, name, chain.instance), kept[name], state)
        wake = chain.next_tick()
        return tuple(  # 3
            Report(
                node.id,
                chain.instance,
                attempt,
                counters[node.id],
                kept.get(node.id, ()),
                staged.get(node.id),
                watermarks=_watermarks(chain, node),
                next_tick=None if wake is None else microseconds(wake),
            )
            for node in chain.nodes
        )

    def _restore(self, files: StateFiles, rows: RowFormat, work: Work, instance: int) -> State:
        chain = work.states.get(rows.component, ())
        state, missing = self._states.take((work.uid, rows.component, instance), chain)
        if state is None:
            state = rows.new_state()
        files.load(rows, missing, state)
        return state


def _watermarks(chain: Chain, node: Node) -> dict[str, int]:
    mine = ((name.partition("/"), at) for name, at in chain.watermarks.items())
    return {part: microseconds(at) for (source, _, part), at in mine if source == node.id and at is not None}


def _time(value: int | None) -> datetime | None:
    return None if value is None else from_microseconds(value)


def row_format(graph: Graph, node: Node, groups: int) -> RowFormat:
    """The rows of a component's state: by key, or one row per instance."""
    assert node.takes is not None and node.keeps is not None
    event = graph[node.inputs[0].node].emits(node.inputs[0].channel) or node.takes
    return RowFormat(node.id, event, node.key, node.keeps, groups)
