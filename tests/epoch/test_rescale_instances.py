"""State by instance: its author divides it; what its author did not say is refused, with the way out."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sample import Payment, payments, run_job
from streamwork import (
    Event,
    Job,
    JobFailed,
    ListSource,
    Record,
    Refused,
    SqliteSink,
    StatefulOperator,
    StatefulSource,
    shuffle,
)

EVENTS = payments(40)


class Note(Event):
    instance: int
    total: int


class Total(Record):
    total: int = 0
    events: int = 0


class Adding(StatefulOperator[Payment, Total, Note]):
    def setup_instance(self, instance: Any, state: Total | None) -> None:
        self._number, self._mine = int(instance), state or Total()

    def apply(self, event: Payment, collector: Any) -> None:
        self._mine.total += event.amount
        self._mine.events += 1
        collector.emit(Note(self._number, self._mine.total))

    def get_state(self) -> Total:
        return self._mine


class Divided(Adding):
    """All that was added goes to the first instance."""

    def rescale(self, states: list[Total], count: int) -> Sequence[Total | None]:
        whole = Total(sum(one.total for one in states), sum(one.events for one in states))
        return [whole, *[None] * (count - 1)]


class Raising(Adding):
    def rescale(self, states: list[Total], count: int) -> Sequence[Total | None]:
        raise ValueError("not today")


class TooFew(Adding):
    def rescale(self, states: list[Total], count: int) -> Sequence[Total | None]:
        return states[:1]


def job(folder: Path, events: int, operator: Adding, parallelism: int) -> Job:
    made = Job("adding", checkpoint_every=0)
    stream = made.source(ListSource(EVENTS[:events], Payment, max_events=10), id="in")
    stream.apply(operator, grouping=shuffle(), id="add", parallelism=parallelism).sink(
        SqliteSink(folder / "out.db", "out"), id="out"
    )
    return made


def newest(folder: Path, name: str) -> Any:
    from streamwork.epoch import Store
    from streamwork.world import RealDisk

    store = Store(RealDisk(), folder / "root", name)
    return store.manifest(max(store.completed()))


@pytest.mark.parametrize("after", [1, 4])
def test_what_the_author_divides_goes_on(tmp_path: Path, after: int) -> None:
    run_job(job(tmp_path, 20, Divided(), 2), tmp_path / "root")
    run_job(job(tmp_path, 40, Divided(), after), tmp_path / "root")
    run_job(job(tmp_path, 40, Divided(), 1), tmp_path / "root")
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        rows = db.execute("SELECT instance, total FROM out ORDER BY rowid").fetchall()
    assert len(rows) == 40
    last = dict(rows[20:])
    first = [total for instance, total in rows[20:] if instance == 0]
    before = sum(event.amount for event in EVENTS[:20])
    assert first[0] >= before, "instance 0 goes on with all that was added before"
    assert sum(last.values()) == sum(event.amount for event in EVENTS)


@pytest.mark.parametrize(
    ("operator", "error", "code", "says"),
    [
        (Adding(), Refused, "SW-STATE-PARALLELISM", "rescale"),
        (Raising(), JobFailed, "SW-STATE-RESCALE", "not today"),
        (TooFew(), JobFailed, "SW-STATE-RESCALE", "3 Total records"),
    ],
)
def test_what_cannot_be_divided_is_refused_and_nothing_is_changed(
    tmp_path: Path, operator: Adding, error: type[Exception], code: str, says: str
) -> None:
    run_job(job(tmp_path, 20, operator, 2), tmp_path / "root")
    before = newest(tmp_path, "adding")
    with pytest.raises(error, match=code) as raised:
        run_job(job(tmp_path, 40, operator, 3), tmp_path / "root")
    assert says in str(raised.value)
    assert newest(tmp_path, "adding") == before
    run_job(job(tmp_path, 40, operator, 2), tmp_path / "root")
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        assert db.execute("SELECT count(*) FROM out").fetchone() == (40,)


# ---- a polled source ----------------------------------------------------------------------------------------------


class Place(Record):
    taken: list[int] = []


class Numbers(StatefulSource[Payment, Place]):
    """The numbers below a limit; each instance gives those that leave its own remainder when divided by the count."""

    replayable = True
    bounded = True
    max_events = 5

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def setup_instance(self, instance: Any, state: Place | None) -> None:
        self._taken = list(state.taken) if state else []
        mine = range(int(instance), self._limit, instance.count)
        self._left = [number for number in mine if number not in set(self._taken)]

    def get_events(self, collector: Any) -> None:
        for number in self._left[: self.max_events]:
            collector.emit(Payment(f"card-{number}", number))
            self._taken.append(number)
        del self._left[: self.max_events]

    def get_state(self) -> Place:
        return Place(sorted(self._taken))

    def rescale(self, states: list[Place], count: int) -> Sequence[Place]:
        every = sorted(number for one in states for number in one.taken)
        return [Place([number for number in every if number % count == instance]) for instance in range(count)]


def test_a_polled_source_is_divided_by_its_author(tmp_path: Path) -> None:
    for limit, parallelism in ((11, 2), (23, 3), (31, 1)):
        made = Job("numbers", checkpoint_every=0)
        stream = made.source(Numbers(limit), id="in", parallelism=parallelism)
        stream.sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
        run_job(made, tmp_path / "root")
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        assert sorted(row[0] for row in db.execute("SELECT amount FROM out")) == list(range(31))
