"""One attempt at one epoch by one instance: restore, read, process, write, report.

The numbers are those of the epoch's steps (`streamwork.epoch.driver`); an attempt is steps 2 and 3.

    2a  the state of the epoch's start: from the worker's cache, else from its files
    2b  the slice of every source partition goes through the chain
    2c  changed records and staged outputs are written under names that hold fence and attempt, and made durable
    3   the report names these files; only a manifest that repeats it makes them count

A crash or an error anywhere before 3 leaves files that nobody names. The cache is empty-handed then, because its entry
was taken out at 2a and goes back only after 2c.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from streamwork.engine.chain import Chain
from streamwork.engine.instance import Instance
from streamwork.engine.report import Failure, Report, Reports
from streamwork.engine.work import Work
from streamwork.errors import JobFailed, StreamworkError
from streamwork.job import Graph
from streamwork.state import FileRef, State, StateCache, StateFiles
from streamwork.state.rows import RowFormat
from streamwork.world import Disk


class Worker:
    """A process that computes attempts, one after another, and remembers what it can use again."""

    def __init__(self, disk: Disk, new_attempt: Callable[[], str] = lambda: secrets.token_hex(4)) -> None:
        self._disk = disk
        self._new_attempt = new_attempt
        self._states = StateCache()
        self._chains: dict[tuple[str, int], Chain] = {}

    def run(self, graph: Graph, graph_token: str, work: Work) -> Reports:
        """One attempt. An error that a person must see comes back as data. `graph_token` names these very objects."""
        chain = self._chains.pop((graph_token, work.instance), None)
        try:
            if chain is None:
                chain = Chain(graph, instance=work.instance)
            reports = self._attempt(chain, work)
        except (StreamworkError, OSError) as error:
            return Reports(failure=Failure.of(placed(error, graph, work.epoch)))
        self._chains[graph_token, work.instance] = chain
        return Reports(reports)

    def close(self) -> None:
        for chain in self._chains.values():
            chain.close()
        self._chains.clear()

    def _attempt(self, chain: Chain, work: Work) -> tuple[Report, ...]:
        files = StateFiles(self._disk, Path(work.folder))

        def restore(rows: RowFormat, wanted: tuple[FileRef, ...]) -> State:
            state, missing = self._states.take((work.uid, rows.component, work.instance), wanted)
            state = rows.new_state() if state is None else state
            files.load(rows, missing, state)
            return state

        instance = Instance(chain, self._disk, work, restore)  # 2a
        try:
            instance.begin(work.epoch, self._new_attempt())
            instance.tick(work.ticks)
            for _ in instance.read(work.ranges):  # 2b
                pass
            reports = instance.finish()  # 2c
        finally:
            instance.discard()
        for name, state in instance.states.items():
            self._states.put((work.uid, name, work.instance), instance.refs[name], state)
        return reports  # 3


def placed(error: StreamworkError | OSError, graph: Graph, epoch: int) -> StreamworkError:
    """The error with the epoch in it. A full disk, a missing file: trouble of the surroundings gets a code too."""
    place = f" [job {graph.job}, epoch {epoch}]"
    if isinstance(error, StreamworkError):
        error.cause += place
        return error
    action = "make room, or bring the file or folder back, and start again: the last checkpoint is good"
    return JobFailed("SW-IO-FAILED", f"{error}{place}", action)
