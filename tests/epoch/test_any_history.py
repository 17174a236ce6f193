"""Any graph, any epochs, any changes between them: the results are those of a run that never stopped.

A job is a tree of operators that sum per card, each with a sink. Between its lives it is saved and begins again in another root,
its records and keys become those of a later version (`evolving`), its parallelism changes, its components are renamed.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from evolving import VERSIONS, Paid, Sum
from sample import Payment, Seen, payments
from savepoint_world import JOB, World
from streamwork import Job, ListSource, SqliteSink
from streamwork.epoch import Driver, Store
from streamwork.epoch.savepoints import Savepoint
from streamwork.epoch.savepoints.origin import Origin
from streamwork.epoch.savepoints.restoring import Choices, Restoring
from streamwork.job import Graph
from streamwork.state.evolution import Evolution
from streamwork.state.restore_plan import ComponentPlan
from streamwork.testing.memory import MemorySink, Table
from streamwork.testing.script import Script

SOURCE = -1


def as_paid(event: Payment) -> Paid:
    return Paid(event.card, event.amount)


def as_payment(event: Seen) -> Payment:
    return Payment(event.card, event.total % 50)


@dataclass(frozen=True)
class Life:
    """What is changed before a start, and how many epochs it completes."""

    epochs: int
    parallelism: int
    versions: tuple[int, ...]  # of every operator: by how much it rises
    renames: bool
    moves: bool  # it is saved, and begins in another root


@dataclass
class Tree(World):
    """A job whose operators read the source or an earlier operator."""

    parents: tuple[int, ...]
    seed: int = 0
    count: int = 24
    tables: list[Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        World.__init__(self, self.seed, payments(self.count, cards=5), slices=4)
        self.tables = [Table() for _ in self.parents]
        self.versions = [0 for _ in self.parents]
        self.parallelism, self.name, self.root = 2, 0, Path("/root")

    @property
    def store(self) -> Store:
        return Store(self.disk, self.root, JOB)

    def graph(self, parallelism: int | None = None) -> Graph:
        job = Job(JOB, checkpoint_every=0, parallelism=parallelism or self.parallelism)
        parts: dict[str, Any] = {}
        source = self._id("in")
        streams: dict[int, Any] = {SOURCE: job.source(ListSource([], Payment), **self._named("in"))}
        parts[source] = Script(Payment, self.events, 1, self._slices, lambda: False, self.clock.sleep, self.clock.sleep)
        for number, parent in enumerate(self.parents):
            event, record = VERSIONS[self.versions[number]]
            given = streams[parent]
            if parent != SOURCE:
                given = given.map(as_payment, id=f"payment-{number}")
            if event is Paid:
                given = given.map(as_paid, id=f"paid-{number}")
            key = "card" if event is Payment else "account"
            seen = given.apply(Sum(event, record), key=key, **self._named(f"sums-{number}"))
            seen.sink(SqliteSink("/nowhere/out.db", f"t{number}"), **self._named(f"out-{number}"))
            parts[self._id(f"out-{number}")] = MemorySink(self.tables[number])
            streams[number] = seen
        graph = job.graph()
        return replace(graph, nodes=tuple(replace(n, component=parts.get(n.id, n.component)) for n in graph.nodes))

    def _id(self, role: str) -> str:
        return f"{role}-v{self.name}"

    def _named(self, role: str) -> dict[str, Any]:
        return {"id": self._id(role), "renamed_from": [f"{role}-v{number}" for number in reversed(range(self.name))]}

    def change(self, life: Life, driver: Driver) -> None:
        """Between two lives."""
        saved = self.save(driver, f"life-{self.name}-{driver.fence}") if life.moves else None
        self.processes.restart()
        self.parallelism = life.parallelism
        self.versions = [
            min(was + more, len(VERSIONS) - 1) for was, more in zip(self.versions, life.versions, strict=False)
        ] + self.versions[len(life.versions) :]
        self.name += life.renames
        if saved is not None:
            self.root = self.root / "next"
            origin = Origin.of_savepoint(Savepoint.open(self.disk, saved))
            settings = Job(JOB, checkpoint_every=0, retain=2).settings
            Restoring(self.graph(), settings, self.store, self.clock, self.processes, origin, Choices()).run()

    def live(self, lives: list[Life]) -> None:
        driver = self.run(0)
        for life in lives:
            for _ in range(life.epochs):
                driver.run_epoch()
            self.change(life, driver)
            driver = self.run(0)
        while driver.run_epoch() is not None:
            """Read the rest."""

    @property
    def folder(self) -> Path:
        return self.root / JOB / "savepoints"

    def results(self) -> list[dict[str, list[tuple[int, int]]]]:
        """Of every sink: by card, in order."""
        found = []
        for table in self.tables:
            rows: dict[str, list[tuple[int, int]]] = {}
            for row in table.rows:
                rows.setdefault(row.card, []).append((row.number, row.total))
            found.append(rows)
        return found


def check(parents: tuple[int, ...], seed: int, lives: list[Life]) -> None:
    whole = Tree(parents, seed)
    whole.live([])
    stopped = Tree(parents, seed)
    stopped.live(lives)
    assert stopped.results() == whole.results()


trees = st.integers(1, 3).flatmap(lambda count: st.tuples(*(st.integers(SOURCE, n - 1) for n in range(count))))
any_lives = st.lists(
    st.builds(
        Life,
        epochs=st.integers(0, 2),
        parallelism=st.sampled_from([1, 2, 3, 5]),
        versions=st.tuples(*[st.integers(0, 2)] * 3),
        renames=st.booleans(),
        moves=st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=20, deadline=None, print_blob=True)
@given(parents=trees, seed=st.integers(0, 1000), lives=any_lives)
def test_any_history(parents: tuple[int, ...], seed: int, lives: list[Life]) -> None:
    note(replay(parents, seed, lives))
    check(parents, seed, lives)


def replay(parents: tuple[int, ...], seed: int, lives: list[Life]) -> str:
    """The command that replays a history."""
    call = f"check({parents!r}, {seed}, {lives!r})"
    return f"PYTHONPATH=tests:tests/epoch python -c {shlex.quote(f'from test_any_history import *; {call}')}"


def test_a_replay_command_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(replay((SOURCE,), 1, ALL_AT_ONCE))
    checked: list[Any] = []
    monkeypatch.setitem(globals(), "check", lambda *given: checked.append(given))
    exec(words[-1].partition("; ")[2], globals())
    assert checked == [((SOURCE,), 1, ALL_AT_ONCE)]


ALL_AT_ONCE = [Life(2, 3, (3, 4, 1), True, True), Life(1, 1, (1, 0, 3), True, False)]


def test_all_changes_at_once() -> None:
    check((SOURCE, 0, 0), 1, ALL_AT_ONCE)


@pytest.mark.parametrize("what", ["rows are not migrated", "keys stay where they were"])
def test_control_a_change_that_loses_state_is_found_out(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "rows are not migrated":
        monkeypatch.setattr(Evolution, "_migrate", lambda self, row, version: self._record())
    else:
        monkeypatch.setattr(
            ComponentPlan,
            "by_groups",
            lambda folder, chains, count, groups: ComponentPlan.as_stored(
                folder, {str(n): chains.get(str(n), ()) for n in range(count)}
            ),
        )
    with pytest.raises(AssertionError):
        check((SOURCE, 0, 0), 1, ALL_AT_ONCE)
