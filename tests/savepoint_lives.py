"""A job with two sinks that can be rewound and an operator with a factor, on a simulated machine, for tests of savepoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from sample import Payment, Seen, Sums
from savepoint_world import JOB, ROOT, World
from streamwork import Job, KeyedOperator, ListSource, SqliteSink
from streamwork.components import LedgerEntry, LedgerRow
from streamwork.components.commit_rule import Verdict, settle
from streamwork.components.sink import fenced
from streamwork.engine.instance import row_format
from streamwork.epoch import Driver, Store
from streamwork.epoch.savepoints import Savepoint
from streamwork.epoch.savepoints.origin import Origin
from streamwork.epoch.savepoints.restoring import Choices, Restored, Restoring
from streamwork.epoch.store import Identity
from streamwork.hosts.local import LocalHost
from streamwork.job import Graph
from streamwork.state import StateFiles
from streamwork.state.view import StateView
from streamwork.testing.disk import SimulatedDisk, Survival
from streamwork.testing.memory import MemorySink, Table
from streamwork.testing.script import Script

Row = tuple[str, int, int]


class Rewindable(MemorySink):
    """Knows how many rows it had after each commit. A table belongs to one uid, as that of a real sink does."""

    def __init__(self, table: Any) -> None:
        super().__init__(table)

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        applies = settle(self._table.ledger, entry) is Verdict.APPLY
        super().commit(entry, staged)
        if applies:
            self._table.commits[entry.manifest_sha256] = len(self._table.rows)

    def cannot_rewind(self, uid: str, sink_id: str, to: LedgerRow) -> str:
        return "" if to.manifest_sha256 in self._table.commits else "it has no record of that checkpoint"

    def rewind(self, uid: str, sink_id: str, to: LedgerRow) -> int:
        row, kept = self._table.ledger, self._table.commits[to.manifest_sha256]
        if row.fence > to.fence:
            raise fenced(sink_id, row.fence, to.fence)
        removed = len(self._table.rows) - kept
        del self._table.rows[kept:]
        self._table.ledger = LedgerRow(row.fence, to.position, to.manifest_sha256)
        return removed


class Target(Table):
    def __init__(self) -> None:
        super().__init__()
        self.commits: dict[str, int] = {}

    @property
    def journal(self) -> list[Row]:
        return [(row.card, row.number, row.total) for row in self.rows]


class Times(KeyedOperator[Payment, Sums, Seen]):
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        state.number += 1
        state.total += event.amount * self.factor
        collector.emit(Seen(event.card, state.number, state.total))


class Life(World):
    """A job whose operator has a factor, with two sinks."""

    def __init__(self, seed: int = 0, disk: SimulatedDisk | None = None) -> None:
        super().__init__(seed)
        self.disk = disk or self.disk
        self.root = ROOT
        self.name = JOB
        self.factor = 1
        self.targets = {"one": Target(), "two": Target()}

    @property
    def store(self) -> Store:
        return Store(self.disk, self.root, self.name)

    def graph(self, parallelism: int = 2) -> Graph:
        job = Job(self.name, checkpoint_every=0, parallelism=parallelism)
        seen = job.source(ListSource([], Payment), id="in").apply(Times(self.factor), key="card", id="sums")
        for name in self.targets:
            seen.sink(SqliteSink("/nowhere/out.db", name), id=name)
        sleep = self.clock.sleep
        parts: dict[str, Any] = {name: Rewindable(target) for name, target in self.targets.items()}
        parts["in"] = Script(Payment, self.events, 1, self._slices, lambda: False, sleep, sleep)
        graph = job.graph()
        return replace(graph, nodes=tuple(replace(n, component=parts.get(n.id, n.component)) for n in graph.nodes))

    def driver(self, **options: Any) -> Driver:
        self.processes.restart()
        return Driver(
            self.graph(),
            Job(self.name, checkpoint_every=0, retain=2).settings,
            self.store,
            LocalHost(self.disk, clock=self.clock),
            self.clock,
            self.new_uid,
            processes=self.processes,
            **options,
        )

    def to_the_end(self) -> None:
        driver = self.run(0)
        while driver.run_epoch() is not None:
            pass

    def restoring(self, folder: Path, rewind: bool = False, identity: Identity | None = None) -> Restored:
        self.processes.restart()
        origin = Origin.of_savepoint(Savepoint.open(self.disk, folder))
        settings, choices = Job(self.name).settings, Choices(rewind_output=rewind)
        return Restoring(
            self.graph(), settings, self.store, self.clock, self.processes, origin, choices, identity
        ).run()

    def sums(self, savepoint: Savepoint) -> dict[Any, int]:
        graph = self.graph()
        rows = row_format(graph, graph["sums"], 256)
        view = StateView(StateFiles(self.disk, savepoint.folder), rows, savepoint.chains["sums"])
        return {key: record.total for key, record in view.records().items()}

    def power_fails(self, survival: Survival) -> None:
        self.disk.crash(survival)
        self.processes.restart()


def journal(life: Life, versions: list[tuple[int, int]]) -> list[Row]:
    """What a run writes that reads so many events with each of the factors in turn."""
    factors = [factor for count, factor in versions for _ in range(count)]
    state: dict[str, tuple[int, int]] = {}
    rows = []
    for event, factor in zip(life.events, factors, strict=True):
        number, total = state.get(event.card, (0, 0))
        state[event.card] = number + 1, total + event.amount * factor
        rows.append((event.card, *state[event.card]))
    return rows


def has(target: Target, rows: list[Row]) -> bool:
    """Every row once, those of a card in their order."""
    by_card = [[row for row in target.journal if row[0] == card] for card in sorted({row[0] for row in rows})]
    expected = [[row for row in rows if row[0] == card] for card in sorted({row[0] for row in rows})]
    return by_card == expected and Counter(target.journal) == Counter(rows)
