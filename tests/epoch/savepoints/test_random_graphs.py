"""Random lives on random graphs: saved, evolved, rescaled, renamed, forked and rolled back. Each life writes what a run would that
never stopped.

A graph is a row of stages between a source and two sinks. Its oracle is a fold of the input, event by event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from epoch.savepoints.test_lives import Walk
from evolving import VERSIONS, Sum
from sample import Payment, Seen, Sums
from savepoint_lives import Life, Rewindable, Row, has
from savepoint_world import JOB
from streamwork import Job, KeyedOperator, ListSource, SqliteSink
from streamwork.job import Graph
from streamwork.state.evolution import Evolution
from streamwork.testing.disk import SimulatedDisk
from streamwork.testing.script import Script

PARALLELISMS = [1, 2, 3, 5]
STAGES = ["again", "odd", "split", "shuffled"]


class Again(KeyedOperator[Seen, Sums, Seen]):
    """Adds the totals of a card up."""

    def apply(self, event: Seen, state: Sums, collector: Any) -> None:
        state.number += 1
        state.total += event.total
        collector.emit(Seen(event.card, state.number, state.total))


def is_odd(event: Any) -> bool:
    return bool(event.total % 2)


def is_even(event: Any) -> bool:
    return not is_odd(event)


@dataclass(frozen=True)
class Shape:
    """What stands between the first component and the sinks."""

    stages: tuple[str, ...]
    parallelisms: tuple[int, ...]  # of the stages, in turn

    def build(self, stream: Any, shift: int, name_number: int) -> Any:
        """`shift` moves the parallelisms; the ids of stages end in their version."""
        for place, stage in enumerate(self.stages):
            wide = self.parallelisms[(place + shift) % len(self.parallelisms)]
            id, *former = (f"{stage}-{place}-v{number}" for number in range(name_number, -1, -1))
            if stage == "again":
                stream = stream.apply(Again(), key="card", id=id, parallelism=wide, renamed_from=former)
            elif stage == "odd":
                stream = stream.filter(is_odd)
            elif stage == "split":
                stream = stream.filter(is_odd).union(stream.filter(is_even))
            else:
                stream = stream.apply(Again(), key="card", id=id, parallelism=1, renamed_from=former)
                stream = stream.map(same, to=Seen)
        return stream

    def fold(self, events: Sequence[Payment]) -> list[list[Row]]:
        """The oracle: the rows of each event."""
        steps: list[Callable[[Seen], Seen | None]] = []
        for stage in self.stages:
            if stage in ("again", "shuffled"):
                steps.append(totals())
            elif stage == "odd":
                steps.append(lambda seen: seen if is_odd(seen) else None)
        first, found = totals(), []
        for event in events:
            seen: Seen | None = first(Seen(event.card, 0, event.amount))
            for step in steps:
                seen = None if seen is None else step(seen)
            found.append([] if seen is None else [(seen.card, seen.number, seen.total)])
        return found


def same(event: Seen) -> Seen:
    return event


def totals() -> Callable[[Seen], Seen]:
    state: dict[str, tuple[int, int]] = {}

    def step(seen: Seen) -> Seen:
        number, total = state.get(seen.card, (0, 0))
        state[seen.card] = number + 1, total + seen.total
        return Seen(seen.card, *state[seen.card])

    return step


class Grown(Life):
    """A life whose code changes: its version, its parallelisms, its ids."""

    def __init__(self, seed: int, shape: Shape, disk: SimulatedDisk | None = None) -> None:
        super().__init__(seed, disk)
        self.shape = shape
        self.version = self.shift = self.name_number = 0
        self.parallelism = 2

    def graph(self, parallelism: int | None = None) -> Graph:
        event, record = VERSIONS[self.version]
        job = Job(self.name, checkpoint_every=0, parallelism=parallelism or self.parallelism)
        key = "card" if event is Payment else "account"
        seen = job.source(ListSource([], event), id="in").apply(Sum(event, record), key=key, id="sums")
        done = self.shape.build(seen, self.shift, self.name_number)
        for name in self.targets:
            done.sink(SqliteSink("/nowhere/out.db", name), id=name)
        given = [event(one.card, one.amount) for one in self.events]  # type: ignore[call-arg]
        sleep = self.clock.sleep
        parts: dict[str, Any] = {name: Rewindable(target) for name, target in self.targets.items()}
        parts["in"] = Script(event, given, 1, self._slices, lambda: False, sleep, sleep)
        graph = job.graph()
        return replace(graph, nodes=tuple(replace(n, component=parts.get(n.id, n.component)) for n in graph.nodes))


class Growth(Walk):
    def __init__(self, seed: int, shape: Shape) -> None:
        super().__init__(seed)
        self.shape = shape
        self.lives = [Grown(seed, shape)]

    @property
    def one(self) -> Grown:
        now = self.now
        assert isinstance(now, Grown)
        return now

    def evolve(self, number: int) -> None:
        self.one.version = min(len(VERSIONS) - 1, self.one.version + 1 + number % 2)
        self.run(number % 2)

    def rescale(self, number: int) -> None:
        self.one.parallelism, self.one.shift = PARALLELISMS[number % len(PARALLELISMS)], self.one.shift + 1
        self.run(number % 2)

    def rename(self, number: int) -> None:
        self.one.name_number += 1
        self.run(number % 2)

    def rows(self, life: Life, begin: int) -> list[Row]:
        return [row for rows in self.shape.fold(life.events)[begin:] for row in rows]

    def check(self) -> None:
        for life, begin in zip(self.lives, self.begins, strict=True):
            life.to_the_end()
            rows = self.rows(life, begin)
            assert all(has(target, rows) for target in life.targets.values()), life.name


MOVES = ["run", "save", "evolve", "rescale", "rename", "back", "move", "fork", "first"]
shapes = st.builds(
    Shape,
    st.lists(st.sampled_from(STAGES), max_size=4).map(tuple),
    st.lists(st.sampled_from(PARALLELISMS), min_size=1, max_size=4).map(tuple),
)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 99),
    shape=shapes,
    steps=st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 3)), min_size=3, max_size=10),
)
@example(
    seed=0,
    shape=Shape(("again", "split", "again"), (2, 3)),
    steps=[
        ("evolve", 1),
        ("rename", 0),
        ("fork", 0),
        ("rescale", 2),
        ("save", 0),
        ("first", 0),
        ("evolve", 1),
        ("run", 1),
    ],
)
def test_every_life_writes_what_a_run_would_that_never_stopped(
    seed: int, shape: Shape, steps: list[tuple[str, int]]
) -> None:
    walk = Growth(seed, shape)
    for move, number in [("run", 1), ("save", 0), *steps]:
        getattr(walk, move)(number)
    assert walk.lives[0].name == JOB
    walk.check()


def test_control_rows_that_are_not_migrated_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evolution, "_migrate", lambda self, row, version: self._record())
    walk = Growth(0, Shape(("again",), (2,)))
    for move, number in [("run", 1), ("save", 0), ("evolve", 1), ("evolve", 1), ("fork", 0)]:
        getattr(walk, move)(number)
    with pytest.raises(AssertionError):
        walk.check()
